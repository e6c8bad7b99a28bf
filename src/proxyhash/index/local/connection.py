"""Connections to the SQLite file of an index, and error messages."""

import os
import sqlite3
from pathlib import Path

from proxyhash.utils.errors import DamagedError, InputError

READ_CACHE = -512  # page cache of a reader in KB; readers hold codes in memory, not pages


def connect(path: Path, wait: float) -> sqlite3.Connection:
    """Open the file of an index for writing, or for reading if the folder is read-only."""
    if not path.is_file():
        raise InputError(f"There is no index at {path.parent}: it has no {path.name}.")
    # The file must not be opened otherwise than by SQLite: closing it would drop the locks of this process.
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise InputError(f"{path} cannot be read; check who owns it.")
    connection = _open(f"{path.absolute().as_uri()}?mode=rw", wait)
    if connection is None:  # a read-only folder: nobody can be writing there either, unless it has a log
        connection = _open(f"{path.absolute().as_uri()}?mode=ro", wait)
    if connection is None and not _has_log(path):
        connection = _open(f"{path.absolute().as_uri()}?immutable=1", wait)
    if connection is None:
        raise InputError(
            f"{path} cannot be opened: the folder cannot be written to, and holds a log that must be recovered."
        )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = {READ_CACHE}")
    connection.execute("PRAGMA trusted_schema = OFF")  # a hostile file may hold triggers and views
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _open(uri: str, wait: float) -> sqlite3.Connection | None:
    """Return a connection that can read, or None if the file system refuses it."""
    connection = sqlite3.connect(uri, uri=True, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")):
            return None
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.is_file() and log.stat().st_size > 0


_MESSAGES = {
    ("SQLITE_BUSY", "SQLITE_LOCKED"): "Another process is writing to {path}; wait until it is done and try again.",
    ("SQLITE_FULL",): "There is no space left for {path}; what was committed is safe, so make room and run it again.",
    ("SQLITE_IOERR",): "The disk failed or is full while {path} was used ({name}); what was committed before is safe.",
    ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM"): "{path} cannot be written to; check who owns the folder.",
    ("SQLITE_NOTADB",): "{path} is not an index: it is not a database at all, or its beginning is damaged.",
}


def translate_error(error: sqlite3.Error, path: Path) -> InputError:
    """Return an error of SQLite as one helpful sentence."""
    name = getattr(error, "sqlite_errorname", "")
    for kinds, text in _MESSAGES.items():
        if name.startswith(kinds):
            return InputError(text.format(path=path, name=name))
    return DamagedError(damaged(path, str(error)))


def damaged(path: Path, reason: str) -> str:
    """Return the sentence about a damaged index."""
    return (
        f"{path} is damaged: {reason.rstrip('.')}; restore a backup, or extract what is intact with: "
        f"proxyhash index salvage {path.parent} NEW."
    )
