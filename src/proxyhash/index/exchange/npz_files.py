"""Files of codes of this package (.npz): arrays of codes, keys, labels and columns, which numpy builds in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.files import write_code_file
from proxyhash.columns import Column
from proxyhash.index.code_import import read_codes
from proxyhash.index.exchange.content import BATCH_SIZE, CodeBatch, CodeContent
from proxyhash.utils.errors import InputError

_MAX_LABEL_MATRIX = 1 << 30  # bytes


def write_npz(path: Path, content: CodeContent) -> int:
    """Write all codes, keys and labels, and return the number of codes; paths are left out."""
    width = (content.bits + 7) // 8
    keys: list[str] = []
    labels: list[tuple[str, ...]] = []
    codes = [np.zeros((0, width), np.uint8)]
    columns: dict[str, list[Column]] = {name: [] for name in content.columns}
    for batch in content.read():
        keys += batch.keys
        labels += batch.labels
        codes.append(batch.codes)
        for name, parts in columns.items():
            parts.append(batch.columns[name])
    if any(text.endswith("\0") for text in chain(keys, *labels)):
        raise InputError("numpy drops null characters at the end of keys and labels; choose another format than .npz.")
    values, names = _label_arrays(labels)
    write_code_file(
        path,
        np.concatenate(codes),
        content.bits,
        keys,
        labels=values,
        label_names=names,
        model=content.model,
        columns={name: _column_array(parts, is_float=name in content.fractions) for name, parts in columns.items()},
    )
    return len(keys)


def _column_array(parts: Sequence[Column], *, is_float: bool) -> "np.ma.MaskedArray[Any, Any]":
    """Return the values of a column in a type of numpy, masked where one is missing."""
    kind = parts[0].type if parts else "number"
    dtype = {"text": np.dtype(np.str_), "date": np.dtype("M8[us]")}.get(kind, np.dtype(np.float64 if is_float else np.int64))
    values: list[NDArray[Any]] = [np.zeros(0, dtype)]
    for part in parts:
        filled = np.where(part.known, part.values, "" if kind == "text" else 0)
        if kind == "text" and any(text.endswith("\0") for text in filled):
            raise InputError("numpy drops null characters at the end of texts; choose another format than .npz.")
        values.append(filled.astype(dtype))
    missing = ~np.concatenate([np.zeros(0, np.bool_), *(part.known for part in parts)])
    return np.ma.MaskedArray(np.concatenate(values), missing)


def _label_arrays(labels: Sequence[tuple[str, ...]]) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """Return labels (N,) as text, or where items have several, a matrix (N, T) of 0 and 1 and the names (T,)."""
    names = {name: column for column, name in enumerate(sorted(set(chain.from_iterable(labels))))}
    if not names:
        return None, None
    if "" not in names and all(len(row) <= 1 for row in labels):
        return np.array([row[0] if row else "" for row in labels], np.str_), None
    if len(labels) * len(names) > _MAX_LABEL_MATRIX:
        raise InputError(f"{len(names):,} labels are too many for a matrix in an .npz file; choose .parquet.")
    matrix = np.zeros((len(labels), len(names)), np.uint8)
    for number, row in enumerate(labels):
        matrix[number, [names[name] for name in row]] = 1
    return matrix, np.array(list(names), np.str_)


@contextmanager
def read_npz(path: Path, bits: int | None) -> Iterator[CodeContent]:
    """Yield the content of a file of codes, which numpy holds in memory."""
    file = read_codes(path)
    if bits is not None and bits != file.bits:
        raise InputError(f"{path} holds codes of {file.bits} bits, not {bits}.")

    def read() -> Iterator[CodeBatch]:
        for first in range(0, len(file.keys), BATCH_SIZE):
            rows = slice(first, first + BATCH_SIZE)
            keys = file.keys[rows]
            labels = [() for _ in keys] if file.labels is None else file.labels[rows]
            columns = {name: column.select(rows) for name, column in file.columns.items()}
            yield CodeBatch(keys, labels, file.codes[rows], [None] * len(keys), columns)

    types = {name: column.type for name, column in file.columns.items()}
    yield CodeContent(file.bits, len(file.keys), read, file.model, columns=types)
