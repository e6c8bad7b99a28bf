"""SQLite file of an index: transactions, and versions of its codes.

Write-ahead logging lets several processes read while one writes; `synchronous=FULL` makes a commit survive a loss of power.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.local.connection import READ_CACHE, connect, describe_error
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import INDEX_SCHEMA
from proxyhash.utils.legacy_names import IndexNames as Sql

APPLICATION_ID = 0x50584958  # "PXIX" in the header of the file marks a database as an index
FORMAT_VERSION = 1
_WRITE_CACHE = -32768  # page cache of a writer in KB
_ROWS_PER_INSERT = 500  # takes a third of the time of single rows
WAIT_SECONDS = 30.0  # that a writer waits for another one


class VersionInfo(NamedTuple):
    """One version of the codes: an upgrade to another model writes a new version beside the active one."""

    bits: int
    model: str | None  # fingerprint; None: codes from elsewhere
    clustered_at: int  # number of codes when centroids were last chosen


class Store:
    """One connection to the file, shared by the threads of a process."""

    def __init__(self, path: Path, *, wait: float = WAIT_SECONDS) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._translate_errors():
            self._connection = connect(path, wait)
            self._check()

    @classmethod
    def create(cls, path: Path, bits: int, model: str | None) -> "Store":
        """Create an empty index; one that another process has just created is opened instead."""
        try:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT_SECONDS)) as connection:
                connection.execute("PRAGMA page_size = 8192")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for statement in INDEX_SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute(f"INSERT INTO {Sql.VERSIONS} VALUES (1, ?, ?, NULL, 0)", (bits, model))
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(describe_error(error, path)) from error
        return cls(path)

    def close(self) -> None:
        """Close the connection; the last one to close merges the log into the file."""
        with self._lock:
            self._connection.close()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, self._translate_errors():
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

    def meta(self, name: str) -> int:
        """Return one of the numbers that describe the index."""
        return int(self.value(f"SELECT value FROM {Sql.META} WHERE name = ?", name))

    def set_meta(self, name: str, value: int) -> None:
        """Change one of these numbers."""
        self.run(f"UPDATE {Sql.META} SET value = ? WHERE name = ?", value, name)

    @property
    def generation(self) -> int:
        """Return a number that grows with every committed transaction."""
        return self.meta(Sql.GENERATION)

    @property
    def next_id(self) -> int:
        """Return the id of the next item that is added."""
        return self.meta(Sql.NEXT_ID)

    @property
    def active_version(self) -> int:
        """Return the version of the codes that is searched."""
        return self.meta(Sql.ACTIVE_VERSION)

    def version_info(self, version: int) -> VersionInfo:
        """Return the description of a version."""
        statement = f"SELECT bits, model, {Sql.CLUSTERED_AT} FROM {Sql.VERSIONS} WHERE number = ?"
        return VersionInfo(*self.rows(statement, version)[0])

    def active_info(self) -> VersionInfo:
        """Return the description of the active version."""
        active = f"SELECT value FROM {Sql.META} WHERE name = '{Sql.ACTIVE_VERSION}'"
        statement = f"SELECT bits, model, {Sql.CLUSTERED_AT} FROM {Sql.VERSIONS} WHERE number = ({active})"
        return VersionInfo(*self.rows(statement)[0])

    def centroids(self, version: int) -> Packed | None:
        """Return the centroids of a version (C, bytes), or None."""
        bits, blob = self.rows(f"SELECT bits, {Sql.CENTROIDS} FROM {Sql.VERSIONS} WHERE number = ?", version)[0]
        return None if blob is None else np.frombuffer(blob, np.uint8).reshape(-1, (bits + 7) // 8)

    def set_centroids(self, version: int, centroids: Packed | None, clustered_at: int) -> None:
        """Store the centroids of a version, and the number of codes that they were chosen for."""
        statement = f"UPDATE {Sql.VERSIONS} SET {Sql.CENTROIDS} = ?, {Sql.CLUSTERED_AT} = ? WHERE number = ?"
        self.run(statement, None if centroids is None else centroids.tobytes(), clustered_at, version)

    def start_version(self, bits: int, model: str) -> int:
        """Return the version that is being written for a model: one that was started before, or a new one.

        All versions but that and the active one are dropped.
        """
        active = self.active_version
        statement = f"SELECT number FROM {Sql.VERSIONS} WHERE model = ? AND number > ?"
        started = self.value(statement, model, active)
        self.drop_versions(active, active if started is None else started)
        if started is None:
            started = active + 1
            self.run(f"INSERT INTO {Sql.VERSIONS} VALUES (?, ?, ?, NULL, 0)", started, bits, model)
        return int(started)

    def drop_versions(self, keep: int, also: int) -> None:
        """Delete the codes and descriptions of all versions but two."""
        self.run(f"DELETE FROM blocks WHERE {Sql.VERSION} NOT IN (?, ?)", keep, also)
        self.run(f"DELETE FROM {Sql.VERSIONS} WHERE number NOT IN (?, ?)", keep, also)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the write lock and yield the new generation; commit at the end, or roll back after an error.

        Inside another `writing` of this thread, it is part of that transaction.
        """
        with self._lock, self._translate_errors():
            if self._in_transaction():
                yield self.generation
                return
            self._connection.execute(f"PRAGMA cache_size = {_WRITE_CACHE}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                generation = self.generation + 1
                self.set_meta(Sql.GENERATION, generation)
                yield generation
                self._connection.execute("COMMIT")
            except BaseException:
                if self._in_transaction():  # SQLite rolls back by itself when the disk is full
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._connection.execute(f"PRAGMA cache_size = {READ_CACHE}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the index throughout, whatever others commit meanwhile."""
        with self._lock, self._translate_errors():
            if self._in_transaction():
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._in_transaction():
                    self._connection.execute("COMMIT")

    def _in_transaction(self) -> bool:
        return self._connection.in_transaction

    def vacuum(self) -> None:
        """Return the space of deleted rows to the file system."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        self.run("VACUUM")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _check(self) -> None:
        if self.value("PRAGMA application_id") != APPLICATION_ID:
            raise InputError(f"{self.path} is a database, but not an index of proxyhash.")
        version = self.value("PRAGMA user_version")
        if version != FORMAT_VERSION:
            raise InputError(f"{self.path} has format {version}; this version of proxyhash reads format {FORMAT_VERSION}.")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise InputError(describe_error(error, self.path)) from error
