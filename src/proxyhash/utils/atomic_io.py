"""Atomic writes of files and folders: complete, or absent."""

import ctypes
import errno
import hashlib
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from proxyhash.utils.errors import InputError

DISK_FULL_ADVICE = "no space is left on its disk; free some and run it again"


def _errnos(*names: str) -> set[int]:
    """Return the numbers of errors that this system knows."""
    return {getattr(errno, name) for name in names if hasattr(errno, name)}


_DISK_FULL_ERRNOS = _errnos("ENOSPC", "EDQUOT")
_NO_LINK_ERRNOS = _errnos("EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK")
_MIN_FREE_BYTES = 1 << 20  # below this, a failed write is taken for a full disk
_DISK_ERRNOS = {*_DISK_FULL_ERRNOS, errno.EIO, errno.EROFS}
_NO_FOLDER_SYNC = _errnos("EINVAL", "ENOTSUP", "ENOSYS")  # of file systems that sync names by themselves
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; the file written there is synced to disk and then renamed to `path`.

    After a loss of power, `path` is the old file or the new one, and the new one if the block has ended.
    """
    try:
        make_folder(path.parent)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix, delete=False) as handle:
            temporary = Path(handle.name)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {_reason(error, path)}.") from error
    try:
        yield temporary
        _sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except IsADirectoryError as error:
        raise InputError(f"Cannot write {path}: it is a folder.") from error
    except Exception as error:
        _raise_as_input_error(error, path, temporary)
        raise
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; when the block ends, it replaces `path` in one step.

    If the block raises, `path` stays as it was. After a loss of power, `path` is the old folder or the new one, and the
    new one if the block has ended. Where the system cannot exchange two folders (`renameat2` of Linux), a loss of power
    during the replacement can leave the old folder under a hidden name beside `path`.
    """
    try:
        make_folder(path.parent)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as error:
        raise InputError(f"Cannot write {path}: {_reason(error, path)}.") from error
    try:
        yield temporary
        temporary.chmod(0o777 & ~umask())
        _sync_tree(temporary)
        _swap(temporary, path)
        sync_folder(path.parent)  # before files of the old folder are deleted
    except Exception as error:
        _raise_as_input_error(error, path, temporary)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # the old folder after a swap, or the incomplete new one


def make_folder(path: Path) -> None:
    """Create a folder and those above it, and sync the names of new ones to disk; an existing one stays."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync_folder(folder.parent)


def name_new_file(temporary: Path, path: Path) -> None:
    """Give a complete file its name; raise FileExistsError if that is taken, also if another process takes it meanwhile.

    On file systems without hard links, such as exFAT, the file is renamed, and two processes at once are not told apart.
    """
    try:
        os.link(temporary, path)
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LINK_ERRNOS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)
    else:
        temporary.unlink()
    sync_folder(path.parent)


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
    if _errno_of(error) in _DISK_FULL_ERRNOS:
        return True
    if isinstance(error, sqlite3.Error):
        return "disk is full" in str(error)
    try:  # torch raises errors that do not give the reason
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


def _sync_tree(folder: Path) -> None:
    """Sync all files of a folder to disk, and their names; the deepest first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            sync_folder(path)
        elif path.is_file():
            _sync_file(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Sync the names of the files in a folder to disk."""
    if hasattr(os, "O_DIRECTORY"):  # a folder cannot be opened on Windows
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(handle)


def _errno_of(error: BaseException) -> int | None:
    """Return the number of a system error, also of one that Rust wrote into its message, as that of safetensors."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = re.search(r"\(os error (\d+)\)", str(error)) if isinstance(error, Exception) else None
    return int(found[1]) if found else None


def _reason(error: BaseException, path: Path) -> str | None:
    """Return why the system did not write `path`, in words; None for an error of another kind."""
    if is_disk_full(error, path.parent):
        return DISK_FULL_ADVICE
    number = _errno_of(error)
    if number is not None:
        return os.strerror(number)
    if isinstance(error, shutil.Error):  # its only argument lists (source, target, message)
        return str(error.args[0][0][-1]).rstrip(".") if error.args and error.args[0] else "a copy failed"
    return "its disk refused the data" if "failed writing file" in str(error) else None  # torch


def _raise_as_input_error(error: Exception, path: Path, temporary: Path) -> None:
    """Raise an `InputError` if the system refused a write to `path`; return if the error has another cause."""
    if isinstance(error, OSError) and error.filename is not None and not _is_own(error.filename, path, temporary):
        return  # about a file that the block reads
    if not isinstance(error, InputError) and (reason := _reason(error, path)) is not None:
        raise InputError(f"Cannot write {path}: {reason}.") from error


def _is_own(name: object, path: Path, temporary: Path) -> bool:
    """Return whether a file is `path`, its folder, or a temporary one beside it."""
    file = Path(os.fsdecode(name)) if isinstance(name, str | bytes) else path
    is_hidden = file.parent == path.parent and file.name.startswith(f".{path.stem}")
    return file in (path, path.parent) or is_hidden or file.is_relative_to(temporary)


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
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if exchange is None:
        return False
    if exchange(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    if (number := ctypes.get_errno()) in _DISK_ERRNOS:  # three renames instead of one would not help
        raise OSError(number, os.strerror(number), str(other))
    return False
