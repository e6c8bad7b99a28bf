"""The SQLite file of an index: its tables, its transactions, and its errors in plain words.

Write-ahead logging lets several processes read while one writes; `synchronous=FULL` makes a commit survive a loss of power.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from proxyhash.utils.errors import InputError

APPLICATION = 0x50584958  # "PXIX", in the header of the file: what says that a database is an index of ours
VERSION = 1
_READING, _WRITING = -512, -32768  # KB of pages that a connection keeps: readers hold codes, not pages
_ROWS = 500  # that one statement inserts: a third of the time of one by one
WAIT = 30.0  # seconds that a writer waits for another one

_SCHEMA = """
CREATE TABLE facts(name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE editions(
    number INTEGER PRIMARY KEY, bits INTEGER NOT NULL, model TEXT, centres BLOB, grouped_at INTEGER NOT NULL);
CREATE TABLE blocks(
    edition INTEGER NOT NULL, number INTEGER NOT NULL, version INTEGER NOT NULL, count INTEGER NOT NULL,
    low INTEGER NOT NULL, high INTEGER NOT NULL, checksum INTEGER NOT NULL,
    groups BLOB NOT NULL, positions BLOB NOT NULL, codes BLOB NOT NULL, PRIMARY KEY(edition, number));
CREATE TABLE sources(number INTEGER PRIMARY KEY, path TEXT NOT NULL, prefix TEXT NOT NULL, UNIQUE(path, prefix));
CREATE TABLE items(
    position INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, labels TEXT, source INTEGER, size INTEGER, modified INTEGER);
INSERT INTO facts VALUES ('live', 1), ('generation', 1), ('next', 0);
"""


class Store:
    """One connection to the file, shared by the threads of a process."""

    def __init__(self, path: Path, *, wait: float = WAIT) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._plainly():
            self._connection = _connect(path, wait)
            self._check()

    @classmethod
    def create(cls, path: Path, bits: int, model: str | None) -> "Store":
        """Make an empty index; one that another process has just made is opened instead."""
        try:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=WAIT)) as connection:
                connection.execute("PRAGMA page_size = 8192")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("BEGIN IMMEDIATE")
                if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for statement in _SCHEMA.split(";"):
                        connection.execute(statement)
                    connection.execute("INSERT INTO editions VALUES (1, ?, ?, NULL, 0)", (bits, model))
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise InputError(sentence(error, path)) from error
        return cls(path)

    def close(self) -> None:
        """Close the connection; the last one to close folds the log into the file."""
        with self._lock:
            self._connection.close()

    def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        with self._lock, self._plainly():
            return self._connection.execute(statement, values).fetchall()

    def each(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query one by one: for rows that are large. The lock is held between them."""
        with self._lock, self._plainly():
            yield from self._connection.execute(statement, values)

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.rows(statement, *values)
        return rows[0][0] if rows else None

    def run(self, statement: str, *values: Any) -> None:
        """Execute a statement of a transaction."""
        with self._plainly():
            self._connection.execute(statement, values)

    def run_many(self, statement: str, rows: Any) -> None:
        """Execute a statement for each of many rows."""
        with self._plainly():
            self._connection.executemany(statement, rows)

    def insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows into a table, many with each statement."""
        waiting = iter(rows)
        with self._plainly():
            while part := list(islice(waiting, _ROWS)):
                row = f"({', '.join('?' * len(part[0]))})"
                values = list(chain.from_iterable(part))
                self._connection.execute(f"INSERT INTO {table} VALUES {', '.join([row] * len(part))}", values)

    def fact(self, name: str) -> int:
        """Return one of the numbers that describe the index."""
        return int(self.value("SELECT value FROM facts WHERE name = ?", name))

    def set_fact(self, name: str, value: int) -> None:
        """Change one of these numbers."""
        self.run("UPDATE facts SET value = ? WHERE name = ?", value, name)

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Hold the only right to write; all is committed at the end, or nothing if an error comes. Gives the generation."""
        with self._lock, self._plainly():
            self._connection.execute(f"PRAGMA cache_size = {_WRITING}")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                generation = self.fact("generation") + 1
                self.set_fact("generation", generation)
                yield generation
                self._connection.execute("COMMIT")
            except BaseException:
                if self._in_transaction():  # a full disk has rolled back by itself
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                self._connection.execute(f"PRAGMA cache_size = {_READING}")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the index throughout, whatever others commit meanwhile."""
        with self._lock, self._plainly():
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
        """Give the space of deleted rows back to the disk."""
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")
        self.run("VACUUM")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def _check(self) -> None:
        if self.value("PRAGMA application_id") != APPLICATION:
            raise InputError(f"{self.path} is a database, but not an index of proxyhash.")
        version = self.value("PRAGMA user_version")
        if version != VERSION:
            raise InputError(f"{self.path} has format {version}; this version of proxyhash reads format {VERSION}.")

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError:
            raise
        except sqlite3.Error as error:
            raise InputError(sentence(error, self.path)) from error


def _connect(path: Path, wait: float) -> sqlite3.Connection:
    if not path.is_file():
        raise InputError(f"There is no index at {path.parent}: it has no {path.name}.")
    connection = _opened(f"{path.absolute().as_uri()}?mode=rw", wait)
    if connection is None:  # a folder that is closed to us: nobody can be writing there either, unless a log lies beside
        connection = _opened(f"{path.absolute().as_uri()}?mode=ro", wait)
    if connection is None and not _has_log(path):
        connection = _opened(f"{path.absolute().as_uri()}?immutable=1", wait)
    if connection is None:
        raise InputError(
            f"{path} cannot be opened: the folder cannot be written to, and holds a log that must be recovered."
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = {_READING}")
    return connection


def _opened(uri: str, wait: float) -> sqlite3.Connection | None:
    """Return a connection that can read, or None if the file system is in the way."""
    connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            return None
        raise
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


_SENTENCES = {
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "Another process is writing to {path}; wait until it is done and try again.",
    ("SQLITE_FULL",): "There is no space left for {path}; what was committed is safe, so make room and run it again.",
    ("SQLITE_IOERR",): "The disk failed or is full while {path} was used ({name}); what was committed before is safe.",
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"): "{path} cannot be written to; check who owns the folder.",
    ("SQLITE_NOTADB",): "{path} is not an index: it is not a database at all, or its beginning is damaged.",
    ("SQLITE_CORRUPT",): "{path} is damaged ({error}); build the index again from its images.",
}


def sentence(error: sqlite3.Error, path: Path) -> str:
    """Say in plain words what SQLite says in its own."""
    name = getattr(error, "sqlite_errorname", "")
    for kinds, text in _SENTENCES.items():
        if name.startswith(kinds):
            return text.format(path=path, name=name, error=error)
    return f"{path} cannot be used: {error}."
