"""Folders that are either whole or absent, and replaced in one step."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxyhash.support.errors import InputError


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`; once everything is in it, it takes the place of what was there.

    If the work fails, what was at `path` stays as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        temporary.chmod(0o755)
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}.") from error
    try:
        yield temporary
        _swap(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap(new: Path, path: Path) -> None:
    """Put `new` where `path` is. The old folder steps aside first: a folder that is not empty cannot be overwritten."""
    if not path.exists():
        new.replace(path)
        return
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-"))
    path.replace(aside)
    try:
        new.replace(path)
    except OSError:
        aside.replace(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)
