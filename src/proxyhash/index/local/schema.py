"""Schema of the SQLite file of an index, and the checksums of its rows.

Every row has a checksum. `versions` also has the number of blocks and codes and the sum of the blocks' checksums, so that
a row that is missing or out of date is noticed. `arrays` has the same of the blocks of each array, and `meta` the sum of the
checksums of `arrays`. A checksum is the CRC-32 of the fields, written as text and joined by "|".
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

APPLICATION_ID = 0x50584958  # "PXIX" in the header of the file marks a database as an index
FORMAT_VERSION = 4  # `user_version` of the file
FIRST_GENERATION = 1  # of an empty index
TABLES_2 = ("meta", "versions", "blocks", "sources", "items")  # of format 2
TABLES_3 = (*TABLES_2, "vectors")
TABLES = (*TABLES_2, "arrays", "array_blocks", "texts")
META_2 = ("active_version", "generation", "next_id", "next_version", "index_id", "requires")  # of format 2
META_3 = (*META_2, "vector_blocks", "num_vectors", "vectors_checksum")
META = (*META_2, "arrays_checksum", "next_text")
VECTORS = "vectors"  # the array of kept vectors

SCHEMA = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE versions(
    number INTEGER PRIMARY KEY, bits INTEGER NOT NULL, model TEXT, centroids BLOB, clustered_at INTEGER NOT NULL,
    config_sha256 TEXT, centroids_checksum INTEGER NOT NULL DEFAULT 0, num_blocks INTEGER NOT NULL DEFAULT 0,
    num_codes INTEGER NOT NULL DEFAULT 0, blocks_checksum INTEGER NOT NULL DEFAULT 0, checksum INTEGER NOT NULL DEFAULT 0);
CREATE TABLE blocks(
    version INTEGER NOT NULL, number INTEGER NOT NULL, generation INTEGER NOT NULL, count INTEGER NOT NULL,
    min_id INTEGER NOT NULL, max_id INTEGER NOT NULL, checksum INTEGER NOT NULL,
    clusters BLOB NOT NULL, item_ids BLOB NOT NULL, codes BLOB NOT NULL, info_checksum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY(version, number));
CREATE TABLE sources(
    number INTEGER PRIMARY KEY, path TEXT NOT NULL, prefix TEXT NOT NULL, checksum INTEGER NOT NULL DEFAULT 0,
    vector_column TEXT, UNIQUE(path, prefix));
CREATE TABLE items(
    item_id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, labels TEXT, source INTEGER, size INTEGER, mtime_ns INTEGER,
    checksum INTEGER NOT NULL DEFAULT 0, file_row INTEGER);
CREATE TABLE arrays(
    name TEXT PRIMARY KEY, settings TEXT NOT NULL, generation INTEGER NOT NULL, num_blocks INTEGER NOT NULL,
    num_items INTEGER NOT NULL, blocks_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE array_blocks(
    number INTEGER PRIMARY KEY, num_items INTEGER NOT NULL, min_id INTEGER NOT NULL, max_id INTEGER NOT NULL,
    width INTEGER NOT NULL, dtype TEXT NOT NULL, ids_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL,
    info_checksum INTEGER NOT NULL, item_ids BLOB NOT NULL, data BLOB NOT NULL,
    array TEXT NOT NULL DEFAULT 'vectors', generation INTEGER NOT NULL DEFAULT 0);
CREATE TABLE texts(code INTEGER PRIMARY KEY, value TEXT NOT NULL UNIQUE, checksum INTEGER NOT NULL);
CREATE UNIQUE INDEX array_numbers ON array_blocks(array, generation, number);
"""


def create_statement(name: str) -> str:
    """Return the statement of the schema that creates a table or an index."""
    return next(statement for statement in SCHEMA.split(";") if f" {name}(" in statement or f" {name} ON" in statement)


def row_checksum(*fields: object) -> int:
    """Return the checksum of a row from its fields.

    >>> row_checksum(7, None, "a") == zlib.crc32(b"7|None|a")
    True
    """
    return zlib.crc32("|".join(map(str, fields)).encode())


def item_checksum(
    item_id: int,
    key: str,
    labels: str | None,
    source: int | None,
    size: int | None,
    mtime_ns: int | None,
    file_row: int | None = None,
) -> int:
    """Return the checksum of a row of `items`; without a row of a file, it is that of format 2."""
    time = mtime_ns if file_row is None else f"{mtime_ns}:{file_row}"
    return zlib.crc32(f"{item_id}|{source}|{size}|{time}|{labels}|{key}".encode())  # half the time of `row_checksum`


def source_checksum(number: int, path: str, prefix: str, vector_column: str | None = None) -> int:
    """Return the checksum of a row of `sources`; without a column of vectors, it is that of format 2."""
    return row_checksum(number, path, prefix, *(() if vector_column is None else (vector_column,)))


def array_block_checksum(array: str, generation: int, number: int, *info: object) -> int:
    """Return the checksum of the description of a block of an array; that of vectors from format 3 did not change."""
    is_migrated = (array, generation) == (VECTORS, 0)
    return row_checksum(*(() if is_migrated else (array, generation)), number, *info)


def meta_checksum(values: Mapping[str, Any], names: Sequence[str] = META) -> int:
    """Return the checksum of the rows of `meta`."""
    return row_checksum(*(values[name] for name in names))
