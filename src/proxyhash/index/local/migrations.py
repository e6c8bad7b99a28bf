"""Migrations of the SQLite file of an index from older formats, each in one transaction.

The file keeps its old format until the transaction commits: a migration that is stopped leaves it as it was, and the next
opening starts again. Other processes that write wait, and programs of the older release get errors afterwards.
"""

import hashlib
import sqlite3
import uuid
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proxyhash.index.local.commits import CommitCount, read_commits, write_commits
from proxyhash.index.local.connection import damaged
from proxyhash.index.local.schema import (
    FORMAT_VERSION,
    META,
    META_2,
    META_3,
    VECTORS,
    create_statement,
    item_checksum,
    meta_checksum,
    row_checksum,
)
from proxyhash.utils.errors import DamagedError, InputError
from proxyhash.utils.formats import RELEASE
from proxyhash.utils.legacy_names import INDEX_COLUMNS_1, INDEX_META_1, INDEX_TABLES_1
from proxyhash.utils.progress import Progress, no_progress

_ITEMS_PER_STEP = 50_000  # between two calls of `progress`
_CREATE_VECTORS_3 = """
CREATE TABLE vectors(
    number INTEGER PRIMARY KEY, num_vectors INTEGER NOT NULL, min_id INTEGER NOT NULL, max_id INTEGER NOT NULL,
    width INTEGER NOT NULL, dtype TEXT NOT NULL, ids_checksum INTEGER NOT NULL, checksum INTEGER NOT NULL,
    info_checksum INTEGER NOT NULL, item_ids BLOB NOT NULL, vectors BLOB NOT NULL)
"""
_VECTORS_TO_ARRAYS = (
    "ALTER TABLE vectors RENAME TO array_blocks",
    "ALTER TABLE array_blocks RENAME COLUMN num_vectors TO num_items",
    "ALTER TABLE array_blocks RENAME COLUMN vectors TO data",
    "ALTER TABLE array_blocks ADD COLUMN array TEXT NOT NULL DEFAULT 'vectors'",
    "ALTER TABLE array_blocks ADD COLUMN generation INTEGER NOT NULL DEFAULT 0",
    create_statement("array_numbers"),
    create_statement("arrays"),
    create_statement("texts"),
)


def migrate(connection: sqlite3.Connection, path: Path, progress: Progress = no_progress, *, strict: bool = True) -> bool:
    """Bring a file to the current format; return False if it cannot be written.

    Parameters
    ----------
    connection
        A connection to the file, outside of a transaction.
    path
        The file. Its folder holds the copies of models.
    progress
        Called with the share of the items that are done.
    strict
        Raise an InputError if a block is damaged; otherwise it is left out.
    """
    if not _begin_writing(connection):
        return False
    with _committing(connection, path):
        if _format(connection) >= FORMAT_VERSION:  # another process was faster
            return True
        count = None
        if _format(connection) == 1:
            generation = _value(connection, "SELECT value FROM facts WHERE name = 'generation'")
            count = read_commits(path.parent) or CommitCount(uuid.uuid4().hex, generation)
            write_commits(path.parent, count)  # before the commit: a file of the new format always has its counter
            migrate_1_to_2(connection, path, count.index_id, progress, strict=strict)
        _migrate_from_2(connection, path)
    if count is not None:
        write_commits(path.parent, CommitCount(count.index_id, generation + 1))
    return True


def migrated_copy(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Return a read-only, temporary copy of a file in the current format, for a folder that cannot be written."""
    copy = sqlite3.connect("", isolation_level=None, check_same_thread=False)  # deleted when it is closed
    connection.backup(copy)
    copy.execute("BEGIN")
    with _committing(copy, path):
        if _format(copy) == 1:
            migrate_1_to_2(copy, path, uuid.uuid4().hex)
        _migrate_from_2(copy, path)
    copy.execute("PRAGMA query_only = ON")
    return copy


def _migrate_from_2(connection: sqlite3.Connection, path: Path) -> None:
    if _format(connection) == 2:
        migrate_2_to_3(connection, path)
    migrate_3_to_4(connection, path)


def migrate_1_to_2(
    connection: sqlite3.Connection, path: Path, index_id: str, progress: Progress = no_progress, *, strict: bool = True
) -> None:
    """Rename tables and columns of release 0.1, and add checksums, in the transaction of the caller.

    An upgrade to another model that was stopped is dropped: release 0.1 could reuse the number of its version.
    """
    rows = dict(connection.execute("SELECT name, value FROM facts").fetchall())
    meta = {new: int(rows[old]) for old, new in INDEX_META_1.items()}
    active = meta["active_version"]
    next_version = _value(connection, "SELECT max(number) FROM editions") + 1
    connection.execute("DELETE FROM blocks WHERE edition != ?", (active,))
    connection.execute("DELETE FROM editions WHERE number != ?", (active,))
    for old, new in INDEX_TABLES_1.items():
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")
    for table, old, new in INDEX_COLUMNS_1:
        connection.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    _add_columns(connection)
    _update_blocks(connection, path, strict=strict)
    _update_version(connection, path)
    _update_items(connection, progress)
    meta |= {"generation": meta["generation"] + 1, "next_version": next_version}
    values = {**meta, "index_id": index_id, "requires": RELEASE}
    connection.execute("DELETE FROM meta")
    checksum = meta_checksum(values, META_2)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [*values.items(), ("checksum", checksum)])
    connection.execute("PRAGMA user_version = 2")


def migrate_2_to_3(connection: sqlite3.Connection, path: Path) -> None:
    """Add columns and a table for vectors, in the transaction of the caller.

    Rows of items and folders keep their checksums, so that millions of items take no time. What is searched does not change,
    so that the generation stays, and lost commits are noticed as before.
    """
    values = _checked_meta(connection, path, META_2)
    connection.execute("ALTER TABLE sources ADD COLUMN vector_column TEXT")
    connection.execute("ALTER TABLE items ADD COLUMN file_row INTEGER")
    connection.execute(_CREATE_VECTORS_3)
    new = {name: 0 for name in META_3 if name not in META_2}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", new.items())
    checksum = meta_checksum({**values, **new}, META_3)
    connection.execute("UPDATE meta SET value = ? WHERE name = 'checksum'", (checksum,))
    connection.execute("PRAGMA user_version = 3")


def migrate_3_to_4(connection: sqlite3.Connection, path: Path) -> None:
    """Make the table of vectors that of the blocks of all arrays, and add that of texts, in the transaction of the caller.

    Blocks keep their bytes and checksums, so that gigabytes of vectors take no time. The generation stays, as before.
    """
    values = _checked_meta(connection, path, META_3)
    for statement in _VECTORS_TO_ARRAYS:
        connection.execute(statement)
    checksum = 0
    if values["vector_blocks"]:
        row = (VECTORS, "{}", 0, values["vector_blocks"], values["num_vectors"], values["vectors_checksum"])
        checksum = row_checksum(*row)
        connection.execute("INSERT INTO arrays VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, checksum))
    connection.executemany("DELETE FROM meta WHERE name = ?", ((name,) for name in META_3 if name not in META))
    new = {"arrays_checksum": checksum, "next_text": 0}
    connection.executemany("INSERT INTO meta VALUES (?, ?)", new.items())
    values |= new
    connection.execute("UPDATE meta SET value = ? WHERE name = 'checksum'", (meta_checksum(values),))
    connection.execute("PRAGMA user_version = 4")


def _checked_meta(connection: sqlite3.Connection, path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return the table `meta` of an older format, if it matches its checksum."""
    values = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if meta_checksum(values, names) != values["checksum"]:
        raise DamagedError(damaged(path, "the table meta does not match its checksum"))
    return values


def _add_columns(connection: sqlite3.Connection) -> None:
    numbers = ("centroids_checksum", "num_blocks", "num_codes", "blocks_checksum", "checksum")
    connection.execute("ALTER TABLE versions ADD COLUMN config_sha256 TEXT")
    for table, column in [
        *(("versions", number) for number in numbers),
        ("blocks", "info_checksum"),
        ("sources", "checksum"),
        ("items", "checksum"),
    ]:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT 0")


def _update_blocks(connection: sqlite3.Connection, path: Path, *, strict: bool) -> None:
    """Compare blocks with their checksums, and add checksums of their descriptions."""
    columns = "version, number, generation, count, min_id, max_id, checksum"
    numbers = [number for (number,) in connection.execute("SELECT number FROM blocks").fetchall()]
    for number in numbers:
        statement = f"SELECT {columns}, clusters, item_ids, codes FROM blocks WHERE number = ?"
        *info, clusters, item_ids, codes = connection.execute(statement, (number,)).fetchone()
        if zlib.crc32(codes, zlib.crc32(item_ids, zlib.crc32(clusters))) == info[-1]:
            connection.execute("UPDATE blocks SET info_checksum = ? WHERE number = ?", (row_checksum(*info), number))
        elif strict:
            raise DamagedError(damaged(path, f"block {number} does not match its checksum"))
        else:
            connection.execute("DELETE FROM blocks WHERE number = ?", (number,))


def _update_version(connection: sqlite3.Connection, path: Path) -> None:
    number, bits, model, centroids, clustered_at = connection.execute(
        "SELECT number, bits, model, centroids, clustered_at FROM versions"
    ).fetchone()
    num_blocks, num_codes, sums = connection.execute(
        "SELECT count(*), coalesce(sum(count), 0), coalesce(sum(info_checksum), 0) FROM blocks"
    ).fetchone()
    config = path.parent / "models" / str(model) / "config.json"
    sha256 = hashlib.sha256(config.read_bytes()).hexdigest() if config.is_file() else None
    fields = (bits, model, clustered_at, sha256, zlib.crc32(centroids or b""), num_blocks, num_codes, sums)
    statement = (
        "UPDATE versions SET config_sha256 = ?, centroids_checksum = ?, num_blocks = ?, num_codes = ?, "
        "blocks_checksum = ?, checksum = ?"
    )
    connection.execute(statement, (*fields[3:], row_checksum(number, *fields)))


def _update_items(connection: sqlite3.Connection, progress: Progress) -> None:
    """Add checksums to items and sources."""
    connection.create_function("item_checksum", 6, item_checksum, deterministic=True)
    connection.create_function("row_checksum", 3, row_checksum, deterministic=True)
    connection.execute("UPDATE sources SET checksum = row_checksum(number, path, prefix)")
    last = _value(connection, "SELECT coalesce(max(item_id), 0) FROM items")
    checksum = "item_checksum(item_id, key, labels, source, size, mtime_ns)"
    for first in range(0, last + 1, _ITEMS_PER_STEP):
        progress("migrating the index", first / (last + 1))
        statement = f"UPDATE items SET checksum = {checksum} WHERE item_id BETWEEN ? AND ?"
        connection.execute(statement, (first, first + _ITEMS_PER_STEP - 1))
    progress("migrating the index", 1.0)


def _begin_writing(connection: sqlite3.Connection) -> bool:
    """Begin a transaction that writes; return False if the file cannot be written."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA user_version = {_format(connection)}")  # the first write tells
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if error.sqlite_errorname.startswith("SQLITE_READONLY"):
            return False
        raise
    return True


@contextmanager
def _committing(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Commit at the end, or roll back; values of a damaged file may raise nearly anything."""
    try:
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, (KeyError, TypeError, ValueError, AttributeError)) and not isinstance(error, InputError):
            raise DamagedError(damaged(path, "it has other values than an older release wrote")) from error
        raise


def _format(connection: sqlite3.Connection) -> int:
    return _value(connection, "PRAGMA user_version")


def _value(connection: sqlite3.Connection, statement: str, *values: object) -> int:
    return int(connection.execute(statement, values).fetchone()[0])
