"""Vectors of parquet files, and of folders that the library `datasets` saved."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.vectors.arrow_columns import choose_columns, column_values
from proxyhash.data.vectors.files import VectorFile
from proxyhash.labels import ClassLabels, Labels, TagLabels
from proxyhash.utils.errors import InputError

BATCH_ROWS = 8192
KEY_COLUMNS, LABEL_COLUMNS = ("key", "id"), ("label", "labels", "tags")


@dataclass(frozen=True)
class Columns:
    """Columns of a table that are read."""

    vectors: str
    key: str | None
    labels: tuple[str, ...]
    others: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """Return the names of all columns, each once."""
        return list(dict.fromkeys([self.vectors, *([] if self.key is None else [self.key]), *self.labels, *self.others]))


def read_table(
    path: Path,
    vector_column: str | None = None,
    key_column: str | None = None,
    label_columns: Sequence[str] = (),
    columns: Sequence[str] | None = None,
) -> VectorFile:
    """Read vectors, keys, labels and columns of a table batch by batch; the vectors are written to a temporary file.

    Parameters
    ----------
    path
        A .parquet file, a folder of them, or a folder that `Dataset.save_to_disk` of the library `datasets` wrote.
    vector_column, key_column, label_columns, columns
        See `read_vectors`.

    Returns
    -------
    VectorFile
    """
    try:
        import pyarrow.dataset
    except ImportError:
        raise InputError("Tables of vectors need pyarrow: pip install 'proxyhash[parquet]'.") from None
    try:
        table = _HuggingFaceTable(path) if (path / "state.json").is_file() else _ParquetTable(pyarrow.dataset, path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read: {' '.join(str(error).split())[:200].rstrip('.')}.") from error
    chosen = _choose_columns(path, table.schema, vector_column, key_column, label_columns)
    chosen = replace(chosen, others=tuple(choose_columns(path, table.schema, chosen.names(), columns)))
    if not table.count:
        raise InputError(f"{path} holds no rows.")
    values: NDArray[Any] | None = None
    keys: list[str] = []
    labels: list[list[Any]] = [[] for _ in chosen.labels]
    others: dict[str, list[Any]] = {name: [] for name in chosen.others}
    first = 0
    for batch in table.batches(chosen.names()):
        rows = _vectors_of(batch.column(chosen.vectors), path, first)
        if values is None:
            with tempfile.TemporaryFile(prefix="proxyhash-") as file:
                values = np.memmap(file, rows.dtype, "w+", shape=(table.count, rows.shape[1]))
        if rows.shape[1] != values.shape[1]:
            raise InputError(f"{path}: row {first:,} has {rows.shape[1]} values, and row 0 has {values.shape[1]}.")
        values[first : first + len(rows)] = rows
        if chosen.key is not None:
            keys += _keys_of(batch.column(chosen.key), path, first)
        for collected, name in zip(labels, chosen.labels, strict=True):
            collected.extend(batch.column(name).to_pylist())
        for name, collected in others.items():
            collected.extend(column_values(batch.column(name)))
        first += len(rows)
    assert values is not None
    found = _labels_of(labels, chosen.labels, path)
    return VectorFile(path, values, keys if chosen.key is not None else None, found, chosen.vectors, others)


class _ParquetTable:
    """Parquet files by pyarrow."""

    def __init__(self, library: Any, path: Path) -> None:
        self._dataset = library.dataset(path, format="parquet", exclude_invalid_files=False)
        self.schema, self.count = self._dataset.schema, self._dataset.count_rows()

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Yield batches with some columns, in order."""
        return (batch for batch in self._dataset.to_batches(columns=names, batch_size=BATCH_ROWS) if len(batch))


class _HuggingFaceTable:
    """A folder that the library `datasets` saved."""

    def __init__(self, path: Path) -> None:
        try:
            import datasets
        except ImportError:
            raise InputError(f"{path} needs the library datasets: pip install 'proxyhash[datasets]'.") from None
        self._dataset = datasets.load_from_disk(str(path))
        self.schema, self.count = self._dataset.data.schema, len(self._dataset)

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Yield tables with some columns, in order."""
        yield from self._dataset.select_columns(names).with_format("arrow").iter(BATCH_ROWS)


def _choose_columns(path: Path, schema: Any, vectors: str | None, key: str | None, labels: Sequence[str]) -> Columns:
    for name in (vectors, key, *labels):
        if name is not None and name not in schema.names:
            raise InputError(f"{path} has no column {name}; it has {', '.join(schema.names)}.")
    if vectors is None:
        found = [field.name for field in schema if _is_vector(field.type)]
        if len(found) != 1:
            seen = ", ".join(found) or "none"
            raise InputError(f"{path}: name the column of vectors with --vector-column; columns of floats are {seen}.")
        vectors = found[0]
    elif not _is_vector(schema.field(vectors).type):
        raise InputError(f"{path}: the column {vectors} does not hold lists of floats.")
    key = key or next((name for name in KEY_COLUMNS if name in schema.names), None)
    chosen = tuple(labels) or tuple(name for name in LABEL_COLUMNS if name in schema.names)[:1]
    return Columns(vectors, key, chosen)


def _is_vector(kind: Any) -> bool:
    from pyarrow import types

    is_list = types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)
    return bool(is_list and types.is_floating(kind.value_type))


def _vectors_of(column: Any, path: Path, first: int) -> NDArray[Any]:
    """Return a column of lists as a matrix (n, width)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = pc.list_value_length(array)
    if array.null_count:
        raise InputError(f"{path}: row {first + array.is_null().to_pylist().index(True):,} has no vector.")
    widths = pc.unique(lengths).to_pylist()
    if len(widths) != 1 or not widths[0]:
        raise InputError(f"{path}: all vectors need the same width; rows from {first:,} on have {sorted(widths)[:5]}.")
    flat = array.flatten()
    if flat.null_count:
        raise InputError(f"{path}: a vector from row {first:,} on holds a null.")
    matrix: NDArray[Any] = flat.to_numpy(zero_copy_only=False).reshape(len(array), widths[0])
    return matrix


def _keys_of(column: Any, path: Path, first: int) -> list[str]:
    values = column.to_pylist()
    for number, value in enumerate(values):
        if value is None or value == "":
            raise InputError(f"{path}: row {first + number:,} has no key.")
    return [str(value) for value in values]


def _labels_of(columns: Sequence[Sequence[Any]], names: Sequence[str], path: Path) -> Labels | None:
    """Return classes for one column of single values, and tags for lists or for several columns."""
    if not columns:
        return None
    rows = list(zip(*columns, strict=True))
    if len(columns) == 1 and not any(isinstance(value, list) for (value,) in rows):
        return ClassLabels.from_names(["" if value is None else str(value) for (value,) in rows])
    sets = [_tags_of(row) for row in rows]
    tags = sorted(set().union(*sets))
    if not tags:
        raise InputError(f"{path}: the columns {', '.join(names)} hold no tags.")
    number = {tag: index for index, tag in enumerate(tags)}
    values = np.zeros((len(sets), len(tags)), bool)
    for row, given in enumerate(sets):
        values[row, [number[tag] for tag in given]] = True
    return TagLabels(values, tuple(tags))


def _tags_of(row: Sequence[Any]) -> set[str]:
    flat = [one for value in row for one in (value if isinstance(value, list) else [value])]
    return {str(one) for one in flat if one is not None and one != ""}
