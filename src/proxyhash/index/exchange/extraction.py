"""Files of faiss and usearch as content, read in a process of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.columns import ColumnType, make_column
from proxyhash.index.exchange import extract
from proxyhash.index.exchange.content import BATCH_SIZE, CodeBatch, CodeContent, ColumnLine, resolve_bits
from proxyhash.index.exchange.item_lines import item_lines_path, read_header, read_items
from proxyhash.utils.errors import InputError

EXTRAS = {"faiss": "approximate", "usearch": "usearch"}


@contextmanager
def read_extracted(kind: str, path: Path, bits: int | None) -> Iterator[CodeContent]:
    """Yield the content of a file of faiss or usearch.

    Keys and labels are in the file of items beside it. Without that, a key is the name of the file and the id.
    """
    # Windows cannot delete a file that is still mapped.
    with tempfile.TemporaryDirectory(prefix="proxyhash-", ignore_cleanup_errors=True) as folder:
        stated = _extract(kind, path, Path(folder))
        ids = np.load(Path(folder) / "ids.npy")
        codes = np.load(Path(folder) / "codes.npy", mmap_mode="r" if len(ids) else None)
        lines = item_lines_path(path)
        if lines.is_file():
            yield _with_items(path, lines, ids, codes, bits)
        else:
            own_bits = stated if kind == "usearch" else None  # faiss has whole bytes only
            yield _with_ids_as_keys(path, ids, codes, resolve_bits(path, codes.shape[1], own_bits, bits))


def _extract(kind: str, path: Path, folder: Path) -> int:
    """Write ids and codes of a file to a folder, in another process; return the bits that the file states."""
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    command = [sys.executable, "-P", extract.__file__, kind, str(path.absolute()), str(folder)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    result: dict[str, Any] = {}
    if (folder / "result.json").is_file():
        result = json.loads((folder / "result.json").read_text())
    if "missing" in result:
        raise InputError(f"Files of {kind} need {kind}: pip install 'proxyhash[{EXTRAS[kind]}]'.")
    if "refused" in result:
        raise InputError(f"{path} {result['refused']}")
    if done.returncode or "bits" not in result:
        raise InputError(f"{path} makes {kind} crash (exit code {done.returncode}); it is damaged or no file of {kind}.")
    return int(result["bits"])


def _with_items(path: Path, lines: Path, ids: NDArray[Any], codes: Packed, bits: int | None) -> CodeContent:
    """Return codes with the items of their ids."""
    header = read_header(lines)
    if header.items != len(ids) or not np.array_equal(ids, np.arange(len(ids))):
        raise InputError(
            f"{lines} does not belong to {path}, which holds other ids; remove it to import codes with their ids as keys."
        )

    def read() -> Iterator[CodeBatch]:
        first = 0
        for items in read_items(lines):
            if first + len(items) > len(codes):
                raise InputError(f"{lines} is damaged: it has more items than {path}.")
            yield _batch(items, codes[first : first + len(items)], header.columns)
            first += len(items)

    own_bits = resolve_bits(path, codes.shape[1], header.bits, bits)
    return CodeContent(own_bits, len(ids), read, header.model, header=header, columns=header.columns)


def _with_ids_as_keys(path: Path, ids: NDArray[Any], codes: Packed, bits: int) -> CodeContent:
    """Return codes with keys made of the name of the file and their ids."""

    def read() -> Iterator[CodeBatch]:
        for first in range(0, len(ids), BATCH_SIZE):
            rows = slice(first, first + BATCH_SIZE)
            yield _batch([ColumnLine(f"{path.stem}/{number}") for number in ids[rows].tolist()], codes[rows])

    return CodeContent(bits, len(ids), read)


def _batch(items: list[ColumnLine], codes: Packed, types: Mapping[str, ColumnType] = MappingProxyType({})) -> CodeBatch:
    keys, labels = [item.key for item in items], [item.labels for item in items]
    columns = {name: make_column(name, [item.columns.get(name) for item in items], types[name]) for name in types}
    return CodeBatch(keys, labels, np.array(codes), [item.path for item in items], columns)
