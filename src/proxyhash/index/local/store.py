"""SQLite file of an index: transactions, and versions of its codes.

Write-ahead logging lets several processes read while one writes; `synchronous=FULL` makes a commit survive a loss of power.
"""

import sqlite3
import threading
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.local.commits import CommitCount, read_commits, replaced_message, write_commits
from proxyhash.index.local.connection import READ_CACHE, connect, damaged, translate_error
from proxyhash.index.local.migrations import migrate, migrated_copy
from proxyhash.index.local.schema import (
    APPLICATION_ID,
    FIRST_GENERATION,
    FORMAT_VERSION,
    META,
    SCHEMA,
    TABLES,
    meta_checksum,
    row_checksum,
)
from proxyhash.utils.atomic_io import name_new_file
from proxyhash.utils.errors import DamagedError, IndexChangedError, InputError
from proxyhash.utils.formats import RELEASE, check_format
from proxyhash.utils.progress import Progress, no_progress

_WRITE_CACHE = -32768  # page cache of a writer in KB
_ROWS_PER_INSERT = 500  # takes a third of the time of single rows
WAIT_SECONDS = 30.0  # that a writer waits for another one


class Meta(NamedTuple):
    """Numbers that describe the state of an index."""

    active_version: int  # the version of the codes that is searched
    generation: int  # counts committed transactions
    next_id: int  # of the next item; ids are never given twice
    next_version: int  # numbers of versions are never given twice
    index_id: str
    requires: str  # the first release that reads this file
    arrays_checksum: int = 0  # sum of the checksums of the rows of `arrays`
    next_text: int = 0  # code of the next new text of a column; codes are never given twice


class VersionInfo(NamedTuple):
    """One version of the codes: an upgrade to another model writes a new version beside the active one."""

    bits: int
    model: str | None  # fingerprint; None: codes from elsewhere
    clustered_at: int  # number of codes when centroids were last chosen
    config_sha256: str | None = None  # of the model's config.json, which holds the checksums of its files
    centroids_checksum: int = 0
    num_blocks: int = 0
    num_codes: int = 0
    blocks_checksum: int = 0  # sum of the checksums of the descriptions of all blocks


_VERSION_COLUMNS = ", ".join(VersionInfo._fields)


class Store:
    """One connection to the file, shared by the threads of a process.

    If the file is replaced by another one, such as a restored backup, that one is opened before the next transaction.
    """

    def __init__(self, path: Path, *, wait: float = WAIT_SECONDS, progress: Progress = no_progress) -> None:
        self.path = path
        self._progress = progress  # of a migration
        self.times_opened = 0
        self._wait = wait
        self._lock = threading.RLock()
        self._is_reading = False  # in a transaction that sees one state, whose description is read once
        self._meta: Meta | None = None
        with self._translate_errors():
            self._connect()

    @classmethod
    def create(cls, path: Path, bits: int, model: str | None, config_sha256: str | None = None) -> "Store":
        """Create an empty index, complete or absent; one that another process has just created is opened instead."""
        temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
        try:
            with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
                create_tables(connection, uuid.uuid4().hex)
                _insert_version(connection, 1, VersionInfo(bits, model, 0, config_sha256))
                connection.execute("PRAGMA journal_mode = WAL")  # last: closing would merge a log, and hide a refused write
            name_new_file(temporary, path)
        except FileExistsError:
            pass
        except sqlite3.Error as error:
            raise translate_error(error, path) from error
        except OSError as error:
            raise InputError(f"Cannot write {path}: {error.strerror}.") from error
        finally:
            for ending in ("", "-wal", "-shm", "-journal"):
                temporary.with_name(f"{temporary.name}{ending}").unlink(missing_ok=True)
        return cls(path)

    def close(self) -> None:
        """Close the connection; the last one to close merges the log into the file."""
        with self._lock:
            self._connection.close()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, self._translate_errors():
            if not self._in_transaction():
                self._reconnect_if_replaced()
            return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one, for large rows. The lock is held between them."""
        with self._lock, self._translate_errors():
            yield from self._connection.execute(statement, values)

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.rows(statement, *values)
        return rows[0][0] if rows else None

    def run(self, statement: str, *values: Any) -> None:
        """Execute a statement of a transaction."""
        with self._translate_errors():
            self._connection.execute(statement, values)

    def run_many(self, statement: str, rows: Any) -> None:
        """Execute a statement for each of many rows."""
        with self._translate_errors():
            self._connection.executemany(statement, rows)

    def insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows into a table, many with each statement."""
        waiting = iter(rows)
        with self._translate_errors():
            while part := list(islice(waiting, _ROWS_PER_INSERT)):
                row = f"({', '.join('?' * len(part[0]))})"
                values = list(chain.from_iterable(part))
                self._connection.execute(f"INSERT INTO {table} VALUES {', '.join([row] * len(part))}", values)

    def raise_damaged(self, reason: str) -> NoReturn:
        """Raise the InputError of a damaged index."""
        raise DamagedError(damaged(self.path, reason))

    def meta(self) -> Meta:
        """Return the numbers that describe the index."""
        with self._lock:
            if self._meta is None or not self._is_reading:
                self._meta = self._read_meta()
            return self._meta

    def _read_meta(self) -> Meta:
        values = dict(self.rows("SELECT name, value FROM meta"))
        if not {*META, "checksum"} <= values.keys() or meta_checksum(values) != values["checksum"]:
            self.raise_damaged("the table meta does not match its checksum")
        return Meta(*(values[name] for name in META))

    def set_meta(self, **values: int) -> None:
        """Change some of these numbers, in a transaction."""
        changed, self._is_reading = {**self.meta()._asdict(), **values}, False
        self.run_many("UPDATE meta SET value = ? WHERE name = ?", [(changed[name], name) for name in values])
        self.run("UPDATE meta SET value = ? WHERE name = 'checksum'", meta_checksum(changed))

    @property
    def generation(self) -> int:
        """Return a number that grows with every committed transaction."""
        return self.meta().generation

    @property
    def active_version(self) -> int:
        """Return the version of the codes that is searched."""
        return self.meta().active_version

    @property
    def codes_id(self) -> tuple[int, int]:
        """Return which codes are searched: how often a file was opened, which changes if it is replaced, and the version."""
        with self.reading():
            return self.times_opened, self.active_version

    def list_versions(self) -> dict[int, VersionInfo]:
        """Return all versions by number: the active one, and one that an upgrade is writing."""
        rows = self.rows(f"SELECT number, checksum, {_VERSION_COLUMNS} FROM versions ORDER BY number")
        for number, checksum, *fields in rows:
            if row_checksum(number, *fields) != checksum:
                self.raise_damaged(f"the description of version {number} does not match its checksum")
        return {number: VersionInfo(*fields) for number, _, *fields in rows}

    def version_info(self, version: int) -> VersionInfo:
        """Return the description of a version."""
        found = self.list_versions()
        if version not in found:
            self.raise_damaged(f"it has no version {version} of the codes")
        return found[version]

    def active_info(self) -> VersionInfo:
        """Return the description of the active version."""
        with self.reading():
            return self.version_info(self.active_version)

    def set_version(self, version: int, **values: Any) -> None:
        """Change the description of a version, in a transaction."""
        info = self.version_info(version)._replace(**values)
        columns = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE versions SET {columns}, checksum = ? WHERE number = ?"
        self.run(statement, *values.values(), row_checksum(version, *info), version)

    def centroids(self, version: int) -> Packed | None:
        """Return the centroids of a version (C, bytes), or None."""
        info = self.version_info(version)
        blob = self.value("SELECT centroids FROM versions WHERE number = ?", version)
        if zlib.crc32(blob or b"") != info.centroids_checksum:
            self.raise_damaged("its centroids do not match their checksum")
        return None if blob is None else np.frombuffer(blob, np.uint8).reshape(-1, (info.bits + 7) // 8)

    def set_centroids(self, version: int, centroids: Packed | None, clustered_at: int) -> None:
        """Store the centroids of a version, and the number of codes that they were chosen for."""
        blob = None if centroids is None else centroids.tobytes()
        self.run("UPDATE versions SET centroids = ? WHERE number = ?", blob, version)
        self.set_version(version, clustered_at=clustered_at, centroids_checksum=zlib.crc32(blob or b""))

    def start_version(self, bits: int, model: str, config_sha256: str) -> int:
        """Return the version that is being written for a model: one that was started before, or a new one.

        All versions but that and the active one are dropped.
        """
        meta = self.meta()
        others = {number: info for number, info in self.list_versions().items() if number != meta.active_version}
        started = next((number for number, info in others.items() if info.model == model), None)
        self.drop_versions(meta.active_version, meta.active_version if started is None else started)
        if started is None:
            started = meta.next_version
            with self._translate_errors():
                _insert_version(self._connection, started, VersionInfo(bits, model, 0, config_sha256))
            self.set_meta(next_version=started + 1)
        return started

    def drop_versions(self, keep: int, also: int) -> None:
        """Delete the codes and descriptions of all versions but two."""
        self.run("DELETE FROM blocks WHERE version NOT IN (?, ?)", keep, also)
        self.run("DELETE FROM versions WHERE number NOT IN (?, ?)", keep, also)

    @contextmanager
    def writing(self, generation: int | None = None) -> Iterator[int]:
        """Hold the write lock and yield the new generation; commit at the end, or roll back after an error.

        The new generation is the next one, unless it is given, as for a backup, which has that of its index. After the
        commit, the durable counter of commits is raised. Then the transaction is acknowledged. Inside another `writing` of
        this thread, it is part of that transaction.
        """
        with self._lock, self._translate_errors():
            if self._in_transaction():
                yield self.generation
                return
            self._begin_writing()
            try:
                self._connection.execute(f"PRAGMA cache_size = {_WRITE_CACHE}")
                meta = self.meta()
                if meta.generation == FIRST_GENERATION:  # before the first commit: a changed index has its counter
                    write_commits(self.path.parent, CommitCount(meta.index_id, meta.generation))
                generation = meta.generation + 1 if generation is None else generation
                self.set_meta(generation=generation)
                yield generation
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._in_transaction():  # SQLite rolls back by itself when the disk is full
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.IntegrityError):
                    self.raise_damaged(str(error))
                raise
            finally:
                self._connection.execute(f"PRAGMA cache_size = {READ_CACHE}")
            if _file_identity(self.path) != self._file:  # the commit went to a file that others do not see
                raise IndexChangedError(replaced_message(self.path.parent))
            write_commits(self.path.parent, CommitCount(meta.index_id, generation))

    def _begin_writing(self) -> None:
        """Begin a transaction that writes, in the file that has the path now: one may be restored during the wait."""
        while True:
            self._reconnect_if_replaced()
            self._connection.execute("BEGIN IMMEDIATE")
            if _file_identity(self.path) == self._file:
                return
            self._connection.execute("ROLLBACK")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the index throughout, whatever others commit meanwhile."""
        with self._lock, self._translate_errors():
            if self._in_transaction():
                yield
                return
            self._reconnect_if_replaced()
            self._connection.execute("BEGIN")
            self._is_reading, self._meta = True, None
            try:
                yield
            finally:
                self._is_reading = False
                if self._in_transaction():
                    self._connection.execute("COMMIT")

    def _in_transaction(self) -> bool:
        return self._connection.in_transaction

    def vacuum(self) -> None:
        """Return the space of deleted rows to the file system."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        self.run("VACUUM")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _connect(self) -> None:
        """Open the file, migrate an older format, and check that it is an index without lost commits."""
        self._file = _file_identity(self.path)  # first: a file that replaces it now is noticed by the next transaction
        self._check_log()
        self._connection = connect(self.path, self._wait)
        self.times_opened += 1
        if self.value("PRAGMA application_id") != APPLICATION_ID:
            raise InputError(f"{self.path} is a database, but not an index of proxyhash.")
        self._is_copy = False
        if self.value("PRAGMA user_version") < FORMAT_VERSION and not self._migrate():
            self._connection, self._is_copy = migrated_copy(self._connection, self.path), True  # a read-only folder
        self._connection.create_function("crc32", 1, zlib.crc32, deterministic=True)
        self._check_format()
        self._check_schema()
        self._check_commits()

    def _check_log(self) -> None:
        """Raise if the end of the log is damaged.

        The last connection that can write would delete the log when it is closed, and `salvage` finds commits after the
        damage. So this is checked by a connection that can only read.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        count = read_commits(self.path.parent)
        if count is None or not log.is_file() or not log.stat().st_size:
            return
        try:
            uri = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(uri, uri=True, timeout=self._wait)) as connection:
                (generation,) = connection.execute("SELECT value FROM meta WHERE name = 'generation'").fetchone()
        except (sqlite3.Error, TypeError, UnicodeDecodeError):  # reported by the connection that can write
            return
        self._check_generation(generation, count)

    def _check_generation(self, generation: int, count: CommitCount) -> None:
        lost = count.generation - generation
        if lost > 0:
            self.raise_damaged(f"its last {lost:,} commits are lost, because its log was damaged or removed")

    def _migrate(self) -> bool:
        return migrate(self._connection, self.path, self._progress)

    def _check_format(self) -> None:
        number = self.value("PRAGMA user_version")
        if number == FORMAT_VERSION:
            return
        try:
            requires = self.value("SELECT value FROM meta WHERE name = 'requires'")
        except InputError:
            requires = None
        check_format(self.path, f"proxyhash.index/{number}", (f"proxyhash.index/{FORMAT_VERSION}",), requires)

    def _check_schema(self) -> None:
        """Raise unless the file has exactly the tables of an index: triggers and views could change what statements do."""
        found = {(kind, name) for kind, name in self.rows("SELECT type, name FROM sqlite_master WHERE type != 'index'")}
        if found != {("table", name) for name in TABLES}:
            self.raise_damaged("it has other tables, views or triggers than an index")

    def _check_commits(self) -> None:
        """Raise unless the file holds every acknowledged commit."""
        count = read_commits(self.path.parent)  # first: another process may commit in between
        meta = self.meta()
        if count is None:
            if meta.generation > FIRST_GENERATION and not self._is_copy:
                self.raise_damaged("its file 'commits' is missing, so that lost commits would not be noticed")
            return
        if count.index_id != meta.index_id:
            self.raise_damaged("its file 'commits' belongs to another index")
        self._check_generation(meta.generation, count)

    def _reconnect_if_replaced(self) -> None:
        """Open the file again if another one has taken its place. Never inside a transaction."""
        found = _file_identity(self.path)
        if found is not None and found == self._file:
            return
        old = self._connection
        try:
            self._connect()
        except BaseException:
            if self._connection is not old:
                self._connection.close()
            self._connection, self._file = old, None  # the next transaction tries again
            raise
        old.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error
        except UnicodeDecodeError:  # in the message of an error of SQLite
            self.raise_damaged("a name in it cannot be decoded")


def create_tables(connection: sqlite3.Connection, index_id: str) -> None:
    """Write the tables of an empty index, without a version of codes."""
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    meta = Meta(1, FIRST_GENERATION, 0, 2, index_id, RELEASE)._asdict()
    rows = [*meta.items(), ("checksum", meta_checksum(meta))]
    connection.executemany("INSERT INTO meta VALUES (?, ?)", rows)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def _insert_version(connection: sqlite3.Connection, number: int, info: VersionInfo) -> None:
    columns = f"number, checksum, {_VERSION_COLUMNS}"
    marks = ", ".join("?" * (2 + len(info)))
    connection.execute(f"INSERT INTO versions({columns}) VALUES ({marks})", (number, row_checksum(number, *info), *info))


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
