"""Advisory locks on files, which end with the process that holds them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import IO

from proxyhash.utils.errors import InputError


@contextmanager
def exclusive_lock(handle: IO[bytes] | FileIO) -> Iterator[None]:
    """Hold an exclusive lock on an open file, after waiting for others; closing the file releases it too."""
    if os.name != "posix":  # Windows has no advisory locks
        yield
        return
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to lock a file, which is created if needed; yield whether this process has the lock.

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
        yield _try_flock(handle)


def _try_flock(handle: IO[bytes]) -> bool:
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
