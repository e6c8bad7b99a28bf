"""Parquet files: the columns `key`, `labels`, `code` (fixed-size binary) and `path`, and the columns of the items."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.codes.files import MAX_RATIO, MAX_UNPACKED
from proxyhash.columns import ColumnType, make_column
from proxyhash.data.vectors.arrow_columns import choose_columns, column_type, column_values
from proxyhash.index.exchange.content import BATCH_SIZE, CodeBatch, CodeContent, ContentDigest, ContentHeader, resolve_bits
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import dump_json, parse_json

_METADATA = "proxyhash"  # key of the header in the metadata of the file


def write_parquet(path: Path, content: CodeContent) -> int:
    """Write a row group for each batch, of which one is in memory at a time, and return the number of codes."""
    pa, pq = _import_pyarrow()
    code = pa.binary((content.bits + 7) // 8)
    fields = [("key", pa.string()), ("labels", pa.list_(pa.string())), ("code", code), ("path", pa.string())]
    schema = pa.schema([*fields, *_column_fields(content)])
    digest = ContentDigest()
    with atomic_write(path) as temporary, pq.ParquetWriter(temporary, schema, write_page_checksum=True) as writer:
        for batch in content.read():
            digest.add(batch)
            codes = pa.FixedSizeBinaryArray.from_buffers(code, len(batch), [None, pa.py_buffer(batch.codes.tobytes())])
            columns = [pa.array(batch.keys, pa.string()), pa.array(batch.labels, schema.field("labels").type), codes]
            others = [pa.array(batch.columns[name].to_list(), schema.field(name).type) for name in content.columns]
            writer.write_batch(pa.record_batch([*columns, pa.array(batch.paths, pa.string()), *others], schema=schema))
        header = digest.header(content)
        writer.add_key_value_metadata({_METADATA: dump_json(header.as_dict())})
    return header.items


def _column_fields(content: CodeContent) -> list[tuple[str, Any]]:
    """Return names and types of the columns of items."""
    pa, _ = _import_pyarrow()
    types = {"text": pa.string(), "date": pa.timestamp("us", "UTC"), "number": pa.int64()}
    return [(name, pa.float64() if name in content.fractions else types[kind]) for name, kind in content.columns.items()]


@contextmanager
def read_parquet(path: Path, bits: int | None) -> Iterator[CodeContent]:
    """Yield the content of a parquet file, of this package or another one; only the column `code` is needed."""
    _, pq = _import_pyarrow()
    with _translate_errors(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        names, count = file.schema_arrow.names, file.metadata.num_rows
        if "code" not in names:
            raise InputError(f"{path} has no column 'code'; it has {', '.join(names[:20]) or 'none'}.")
        text = (file.metadata.metadata or {}).get(_METADATA.encode())
        header = None if text is None else ContentHeader.parse(parse_json(text, path), path)
        width = _code_width(file, path)
        if count * width > max(MAX_UNPACKED, MAX_RATIO * path.stat().st_size):
            raise InputError(f"{path} unpacks to {count * width:,} bytes, far more than its size, and is not read.")
        used = [name for name in ("key", "labels", "code", "path") if name in names]
        others = choose_columns(path, file.schema_arrow, used, None if header is None else sorted(header.columns))
        types = {name: _require_type(file.schema_arrow.field(name).type) for name in others}

        def read() -> Iterator[CodeBatch]:
            first = 0
            with _translate_errors(path):
                for rows in file.iter_batches(BATCH_SIZE, columns=[*used, *others]):
                    yield _make_batch(rows, width, first, path, types)
                    first += len(rows)

        stated, model = (None, None) if header is None else (header.bits, header.model)
        own_bits = resolve_bits(path, width, stated, bits)
        yield CodeContent(own_bits, count, read, model, header=header, columns=types)


def _require_type(kind: Any) -> ColumnType:
    found = column_type(kind)
    assert found is not None  # such columns were chosen
    return found


def _code_width(file: Any, path: Path) -> int:
    """Return the bytes of a code: those of the type, or of the first code."""
    pa, _ = _import_pyarrow()
    kind = file.schema_arrow.field("code").type
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise InputError(f"{path}: the column 'code' must hold packed codes as binary values, not {kind}.")
    first = next(file.iter_batches(1, columns=["code"]), None)
    if first is None or not first.column(0)[0].as_py():
        raise InputError(f"{path} holds no codes.")
    return len(first.column(0)[0].as_py())


def _make_batch(rows: Any, width: int, first: int, path: Path, types: Mapping[str, ColumnType]) -> CodeBatch:
    """Return rows of the table, from number `first` on."""
    columns = {name: rows.column(name).to_pylist() for name in rows.schema.names if name not in types}
    codes = columns["code"]
    if any(code is None or len(code) != width for code in codes):
        raise InputError(f"{path}: every code must have {width} bytes, like the first.")
    keys = columns.get("key", range(first, first + len(codes)))
    if any(key is None for key in keys):
        raise InputError(f"{path}: every item needs a key, or leave the column 'key' out.")
    keys = [key if isinstance(key, str) else f"{path.stem}/{key}" for key in keys]
    labels = [_labels(value, path) for value in columns.get("labels", [None] * len(codes))]
    packed = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), width)
    paths = [_text(value) for value in columns.get("path", [None] * len(codes))]
    others = {name: make_column(name, column_values(rows.column(name)), kind) for name, kind in types.items()}
    return CodeBatch(keys, labels, packed, paths, others)


def _labels(value: Any, path: Path) -> tuple[str, ...]:
    """Return the labels of one item: a text, a list of texts, or none."""
    labels = (
        () if value is None else (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else None
    )
    if labels is None or not all(isinstance(label, str) for label in labels):
        raise InputError(f"{path}: the column 'labels' must hold texts, or lists of texts.")
    return labels


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of pyarrow, which are of many types, as an InputError."""
    pa, _ = _import_pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(f"{path} cannot be read as parquet: {reason}.") from error


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'proxyhash[parquet]'.") from None
    return pa, pq
