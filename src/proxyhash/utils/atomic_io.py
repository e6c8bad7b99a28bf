"""Atomic writes of files and folders: complete, or absent."""

import ctypes
import errno
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from proxyhash.utils.errors import InputError

DISK_FULL_ADVICE = "no space is left on its disk; free some and run it again"
_DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT}
_MIN_FREE_BYTES = 1 << 20  # below this, a failed write is taken for a full disk
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written there is synced to disk and then renamed to `path`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix, delete=False) as handle:
            temporary = Path(handle.name)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        yield temporary
        _sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except IsADirectoryError as error:
        raise InputError(f"Cannot write {path}: it is a folder.") from error
    except Exception as error:
        if is_disk_full(error, path.parent):
            raise InputError(f"Cannot write {path}: {DISK_FULL_ADVICE}.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; when the block ends, it replaces `path` in one step.

    If the block raises, `path` stays as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~umask())
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync_file(file)
        _swap(temporary, path)
    except Exception as error:
        if is_disk_full(error, path.parent):
            raise InputError(f"Cannot write {path}: {DISK_FULL_ADVICE}.") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # the old folder after a swap, or the incomplete new one


def check_writable(path: Path) -> None:
    """Raise now the error that `atomic_write` would raise after long work."""
    if path.is_dir():
        raise InputError(f"Cannot write {path}: it is a folder.")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"Cannot write {path}: {folder} is not a folder one may write to.")


def checksum(path: Path, algorithm: str) -> str:
    """Return the hexadecimal digest of a file."""
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, algorithm).hexdigest()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error


def is_disk_full(error: BaseException, path: Path) -> bool:
    """Return whether an error means that the disk of `path` is full."""
    if isinstance(error, InputError):
        return False
    if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
        return True
    if isinstance(error, sqlite3.Error):
        return "disk is full" in str(error)
    try:  # torch and safetensors raise errors that do not give the reason
        return shutil.disk_usage(path).free < _MIN_FREE_BYTES
    except OSError:
        return False


def umask() -> int:
    """Return the permission bits that new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_file(path: Path) -> None:
    """Sync a file to disk and give it the permissions of a new file; temporary files have stricter ones."""
    path.chmod(0o666 & ~umask())
    with path.open("rb+") as handle:
        os.fsync(handle.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names of the files in a folder to disk."""
    if os.name == "posix":  # a folder cannot be opened on Windows
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(new: Path, path: Path) -> None:
    """Move `new` to `path` and the old content of `path` to `new`; in one step where the system can."""
    if path.is_file():
        raise InputError(f"Cannot write {path}: it is a file.")
    if not path.exists():
        new.replace(path)
    elif not _exchange(new, path):
        aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-"))
        path.replace(aside)
        new.replace(path)
        aside.replace(new)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders; return False where the system cannot."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(other)
    return exchange is not None and exchange(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0
