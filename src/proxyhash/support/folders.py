"""Folders that are either whole or absent, and replaced in one step."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxyhash.support.disk import ADVICE, is_full
from proxyhash.support.errors import InputError
from proxyhash.support.files import umask

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; once everything is in it, it takes the place of what was there.

    If the work fails, what was at `path` stays as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        yield temporary
        _finish(temporary)
        _swap(temporary, path)
    except Exception as error:
        if is_full(error, path.parent):
            raise InputError(f"Cannot write {path}: {ADVICE}.") from error
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # what was there before, or what was not finished


def _finish(folder: Path) -> None:
    """Bring every file to the disk, and give all the rights that new files have."""
    folder.chmod(0o777 & ~umask())
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~umask())
            with file.open("rb+") as handle:
                os.fsync(handle.fileno())


def _swap(new: Path, path: Path) -> None:
    """Put `new` where `path` is, and what was there where `new` was; in one step where the system can."""
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
    """Exchange two folders; return whether the system could."""
    exchange = getattr(ctypes.CDLL(None), "renameat2", None) if os.name == "posix" else None
    names = os.fsencode(one), os.fsencode(other)
    return exchange is not None and exchange(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0
