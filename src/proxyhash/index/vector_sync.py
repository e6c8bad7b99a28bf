"""Files of vectors in an index: only new and changed rows are encoded, and each item refers to its file and row."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.columns import Column, check_columns
from proxyhash.data.vectors import VectorFile
from proxyhash.index.base import Index
from proxyhash.index.folder_sync import StoredCounts
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.items import FileStat, Labels, Source, check_keys
from proxyhash.index.local.transactions import items_per_transaction
from proxyhash.index.queries import Features
from proxyhash.index.refinement.fitting import MAX_FITTED
from proxyhash.index.results import AddResult
from proxyhash.models.hub import local_folder
from proxyhash.models.storage import read_config, takes_vectors, vector_width
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import permutation

if TYPE_CHECKING:
    from proxyhash.models.vector_hasher import VectorHasher

_ROWS_PER_LOOKUP = 65_536


class VectorSync(Protocol):
    """Items of an index that came from one file of vectors."""

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this file."""
        ...

    def changed_rows(self, keys: Sequence[str], stats: Sequence[FileStat]) -> NDArray[np.bool_]:
        """Return which of the items are new or changed; a key from elsewhere is an error."""
        ...

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels,
        stats: Sequence[FileStat],
        vectors: NDArray[Any] | None = None,
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        features: Features | None = None,
    ) -> StoredCounts:
        """Store a batch durably, with its vectors (n, width) if they are kept, and its features for a refinement."""
        ...

    def remove(self, keys: Sequence[str]) -> int:
        """Remove those of the keys that are still there and came from this file, and return how many."""
        ...


def add_vectors(
    index: Index,
    file: VectorFile,
    *,
    prefix: str = "",
    prune: bool = False,
    keep_vectors: bool = False,
    is_checked: bool = False,
    progress: Progress = no_progress,
) -> AddResult:
    """Encode the new and changed vectors of a file, and store them under `prefix` and their keys.

    A vector without a key is named by its file and row, as in vectors.npy:7. A row counts as unchanged if its key came from
    the same row of the same file, and the size and time of the file are the same, so that a stopped add can be repeated.

    Parameters
    ----------
    index
        An index whose model takes vectors.
    file
        Vectors, and perhaps keys and labels, from `read_vectors`. Items refer to it, so that `index upgrade` can read it.
    prefix
        A prefix of the keys.
    prune
        Also remove items of this file whose keys are not in it any more.
    keep_vectors
        Store the vectors in the index, as float16 or float32; then the file is not needed by an upgrade.
    is_checked
        Whether `check_vectors` was called before.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    AddResult

    Raises
    ------
    InputError
        For input that `check_vectors` refuses, keys that items from elsewhere have, or values of another type than their
        column's; nothing is written then.
    """
    start = time.monotonic()
    if index.width is None:
        raise InputError(f"The model of {index.info().location} does not take vectors; add a folder of images.")
    hasher = cast("VectorHasher", index.hasher)
    rows, names = hasher.rows(file.rows()), _Names(file, prefix)
    if not is_checked:
        check_vectors(file, hasher.width, normalize=hasher.normalizes, prefix=prefix, progress=progress)
    columns = check_columns(file.columns, len(file), index.columns)
    source = Source(file.path.absolute(), prefix, file.column)
    sync, stat = index.vector_sync(source, keep_vectors=keep_vectors), file_stat(file.path)
    changed = _find_changed(index, sync, names, stat)
    deleted = sorted(sync.known_files().keys() - set(names[range(len(file))])) if prune else []
    counts = [StoredCounts(unchanged=len(file) - len(changed))]
    if index.has_refinement and len(changed):
        index.fit_refinement(rows.part(_as_slice(_sample(changed))))
    for part in _parts(changed, items_per_transaction(*([file.values] if keep_vectors else []))):
        some = rows.part(_as_slice(part))
        codes, vectors = hasher.encode(some), some.values if keep_vectors else None
        stats = [stat._replace(row=row) for row in part.tolist()]
        labels: Labels = [() if file.labels is None else file.labels.names_of(row) for row in part.tolist()]
        chosen = {name: column.select(part) for name, column in columns.items()}
        counts.append(sync.store(codes, names[part], labels, stats, vectors, columns=chosen, features=some))
        progress("adding vectors", float(np.searchsorted(changed, part[-1], "right")) / len(changed))
    index.fit_refinement()
    removed = sync.remove(deleted) if deleted else 0
    added, replaced, unchanged = (sum(each) for each in zip(*counts, strict=True))
    return AddResult(added, replaced, unchanged, removed, seconds=time.monotonic() - start)


def check_vectors(
    file: VectorFile, width: int, *, normalize: bool, prefix: str = "", progress: Progress = no_progress
) -> None:
    """Read all vectors of a file once; raise an InputError if an index of such a model cannot hold them.

    Vectors need `width` finite values, which are not all zero if the model scales vectors to length 1. Keys must differ.
    """
    rows = file.rows(normalize=normalize)
    if rows.width != width:
        raise InputError(f"{file.path}: the model takes vectors of {width} values, not {rows.width}.")
    if file.keys is not None:
        check_keys([prefix + key for key in file.keys] if prefix else file.keys, len(file))
    done = 0
    for count in ordered_map(lambda part: len(rows.raw(part)[1]), rows.slices(), available_threads()):
        done += count
        progress("checking vectors", done / len(rows))


def check_vectors_for(file: VectorFile, model: Path, prefix: str = "", progress: Progress = no_progress) -> None:
    """Check the vectors of a file for the model in a folder, before an index is made; see `check_vectors`."""
    folder = local_folder(model)
    width = vector_width(folder)
    if width is None:
        raise InputError(f"{model} takes images, not vectors.")
    check_vectors(file, width, normalize=read_config(folder)["normalize"] is True, prefix=prefix, progress=progress)


def is_vector_model(model: Path) -> bool:
    """Return whether the model in a folder, or in a repository of the Hub, takes vectors, without importing torch."""
    return takes_vectors(read_config(local_folder(model)))


def file_stat(path: Path) -> FileStat:
    """Return size and time of a file; of a folder, the sum of the sizes of its files and the latest time."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    time_ns = max((stat.st_mtime_ns for stat in stats), default=0)
    return FileStat(sum(stat.st_size for stat in stats), (time_ns + 2**63) % 2**64 - 2**63)


@dataclass(frozen=True)
class _Names:
    """Keys of the rows of a file."""

    file: VectorFile
    prefix: str

    def __getitem__(self, rows: Sequence[int] | Int64s) -> list[str]:
        if self.file.keys is not None:
            return [f"{self.prefix}{self.file.keys[row]}" for row in rows]
        return [f"{self.prefix}{self.file.path.name}:{row}" for row in rows]


def _find_changed(index: Index, sync: VectorSync, names: _Names, stat: FileStat) -> Int64s:
    """Return the rows that are to be encoded, ascending."""
    count = len(names.file)
    if not len(index):
        return np.arange(count)
    found = [np.zeros(0, np.int64)]
    for first in range(0, count, _ROWS_PER_LOOKUP):
        part = range(first, min(first + _ROWS_PER_LOOKUP, count))
        stats = [stat._replace(row=row) for row in part]
        found.append(first + np.flatnonzero(sync.changed_rows(names[part], stats)))
    return np.concatenate(found)


def _sample(rows: Int64s) -> Int64s:
    """Return the rows that a refinement is fitted on, ascending."""
    return np.sort(rows[permutation(len(rows), 0, "refinement sample")[:MAX_FITTED]])


def _parts(rows: Int64s, size: int) -> Iterator[Int64s]:
    return (rows[first : first + size] for first in range(0, len(rows), size))


def _as_slice(rows: Int64s) -> slice | Int64s:
    """Return rows that follow each other as a slice, which copies nothing."""
    is_range = len(rows) and rows[-1] - rows[0] + 1 == len(rows)
    return slice(int(rows[0]), int(rows[-1]) + 1) if is_range else rows
