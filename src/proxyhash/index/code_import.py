"""Import of codes into an index: from an .npz file, or from folders of shards that several processes wrote."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.codes.files import read_code_file
from proxyhash.columns import Column, make_column
from proxyhash.index.base import Index
from proxyhash.index.results import AddResult
from proxyhash.models.code_shards import read_shard
from proxyhash.utils.errors import InputError

SHARD = re.compile(r"(?P<number>\d{6,})-of-(?P<of>\d{6,})\.npz")


def find_shards(folders: Sequence[Path]) -> list[Path]:
    """Return the paths of all shards of a collection in order, from one folder or several; a missing one is an error."""
    found: dict[int, Path] = {}
    counts: set[int] = set()
    for path in (path for folder in folders for path in sorted(folder.glob("*.npz"))):
        name = SHARD.fullmatch(path.name)
        if name is not None:
            found.setdefault(int(name["number"]), path)
            counts.add(int(name["of"]))
    where = ", ".join(map(str, folders))
    if len(counts) != 1:
        what = "shards of two different runs; remove the older ones" if counts else "no shards of codes"
        raise InputError(f"{where} holds {what}.")
    missing = sorted(set(range(counts.pop())) - set(found))
    if missing:
        raise InputError(f"{where} lacks {len(missing):,} shards, the first is number {missing[0]}; run the encoding again.")
    return [found[number] for number in sorted(found)]


def add_shards(index: Index, paths: Sequence[Path], on_progress: Callable[[int, int], None] = lambda *_: None) -> AddResult:
    """Add the codes of shards, each verified before it is added; repeating it changes nothing."""
    start, added, replaced = time.monotonic(), 0, 0
    for done, path in enumerate(paths):
        on_progress(done, len(paths))
        shard = read_shard(path)
        if shard.bits != index.bits or (index.model is not None and shard.model != index.model):
            raise InputError(f"{path} holds codes of another model than the index; nothing of it was added.")
        if len(shard):
            more = index.add(shard.codes, shard.keys, shard.labels)
            added, replaced = added + more.added, replaced + more.replaced
    on_progress(len(paths), len(paths))
    return AddResult(added, replaced, seconds=time.monotonic() - start)


class Codes(NamedTuple):
    """Packed codes (N, bytes), their bits, keys (by default file name and number), labels, the model, and columns."""

    codes: Packed
    bits: int
    keys: list[str]
    labels: list[tuple[str, ...]] | None
    model: str | None
    columns: Mapping[str, Column] = {}


def read_codes(path: Path) -> Codes:
    """Return the codes of an .npz or .mat file."""
    file = read_code_file(path)
    if not len(file.codes) and file.keys is None:
        raise InputError(f"{path} holds no codes.")
    keys = [f"{path.stem}/{row}" for row in range(len(file.codes))] if file.keys is None else file.keys
    labels = None if file.labels is None else _labels(file.labels, file.label_names)
    columns = {name: _column(name, values) for name, values in file.columns.items()}
    return Codes(file.codes, file.bits, keys, labels, file.model, columns)


def _column(name: str, values: "np.ma.MaskedArray[Any, Any]") -> Column:
    """Return an array of a file as a column."""
    column = make_column(name, np.asarray(values.data))
    return Column(column.type, column.values, column.known & ~np.ma.getmaskarray(values))


def _labels(labels: NDArray[Any], names: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Return classes (N,) as text, and tags (N, T) of 0 and 1 by their names, or indices."""
    if labels.ndim == 1:
        return [(text,) if (text := str(label)) else () for label in labels]
    return [tuple(str(tag) if names is None else names[tag] for tag in np.flatnonzero(row).tolist()) for row in labels]
