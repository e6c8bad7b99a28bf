"""Advisory locks on files, which end with the process that holds them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO

from proxyhash.utils.errors import InputError

_LOCK_BYTE = 1 << 30  # Windows locks bytes, and nobody else may read them: one beyond the end of our files


@contextmanager
def exclusive_lock(handle: IO[bytes] | FileIO) -> Iterator[None]:
    """Hold an exclusive lock on an open file, after waiting for others; closing the file releases it too."""
    try:
        import fcntl
    except ImportError:  # Windows
        _lock_byte(handle, wait=True)
        try:
            yield
        finally:
            _unlock_byte(handle)
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to lock a file, which is created if needed; yield whether this process has the lock.

    A file that was deleted meanwhile is not locked: another process may have created it again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with try_lock(Path(folder) / "lock") as one, try_lock(Path(folder) / "lock") as other:
    ...         one, other
    (True, False)
    """
    try:
        handle = path.open("ab")
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    with handle:
        yield _try_flock(handle) and is_named(handle, path)


def is_locked(path: Path) -> bool:
    """Return whether a process has the lock of a file; the file is not created.

    >>> is_locked(Path("no such file"))
    False
    """
    try:
        handle = path.open("rb+")
    except OSError:
        return False
    with handle:
        return not _try_flock(handle)


def is_named(handle: IO[bytes] | FileIO, path: Path) -> bool:
    """Return whether a path is that of an open file: the lock of a deleted file excludes nobody."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _try_flock(handle: IO[bytes]) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return _lock_byte(handle, wait=False)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _lock_byte(handle: IO[bytes] | FileIO, *, wait: bool) -> bool:
    """Lock a file of Windows; return False if another process has the lock. On other systems everyone gets it."""
    try:
        import msvcrt
    except ImportError:
        return True
    while True:
        try:
            with _at_lock_byte(handle) as descriptor:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            if not wait:
                return False
            if error.errno != errno.EDEADLK:  # it gives up after ten seconds
                raise
        else:
            return True


def _unlock_byte(handle: IO[bytes] | FileIO) -> None:
    try:
        import msvcrt
    except ImportError:
        return
    with _at_lock_byte(handle) as descriptor:
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]


@contextmanager
def _at_lock_byte(handle: IO[bytes] | FileIO) -> Iterator[int]:
    """Move a file to the byte that is locked, and back."""
    descriptor = handle.fileno()
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, _LOCK_BYTE, os.SEEK_SET)
    try:
        yield descriptor
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)
