"""Files that are either whole or absent."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile

from proxyhash.support.disk import ADVICE, is_full
from proxyhash.support.errors import InputError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; what is written there takes its name only once it is all on disk."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix, delete=False) as handle:
            temporary = Path(handle.name)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~umask())
        temporary.replace(path)
        _sync_folder(path.parent)
    except IsADirectoryError as error:
        raise InputError(f"Cannot write {path}: it is a folder.") from error
    except Exception as error:
        if is_full(error, path.parent):
            raise InputError(f"Cannot write {path}: {ADVICE}.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise now what `written_whole` would raise after long work: the path is a folder, or its folder is closed to us."""
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


def umask() -> int:
    """Return which rights new files do not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
