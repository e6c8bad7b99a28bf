"""Choice of the item of a group to keep: the largest image, the largest file, or the first name that matches a pattern."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from proxyhash.data.decoding import FORMATS
from proxyhash.index.local.items import Item
from proxyhash.utils.errors import InputError

_THREADS = 8  # that wait for the disk


class FileInfo(NamedTuple):
    """Size of an image in pixels, and of its file in bytes; 0 where it is not known."""

    width: int = 0
    height: int = 0
    num_bytes: int = 0


Criterion = Callable[[Item, FileInfo], int]
"""Returns a number; the item with the largest is kept."""


@dataclass(frozen=True)
class KeepBest:
    """Criteria in their order; items that are equal by all of them are kept by their order in the group."""

    criteria: tuple[Criterion, ...] = ()
    needs_files: bool = False

    def best(self, items: Sequence[Item], files: Sequence[FileInfo]) -> int:
        """Return which item to keep."""
        return max(range(len(items)), key=lambda row: (*(one(items[row], files[row]) for one in self.criteria), -row))


def parse_keep_best(text: str | None) -> KeepBest:
    """Return the criteria that a text names, with commas between them: resolution, size, name=PATTERN.

    Raises
    ------
    InputError
        If it names something else.

    Examples
    --------
    >>> keep = parse_keep_best("name=originals/*")
    >>> keep.best([Item(0, "copies/1.jpg"), Item(1, "originals/1.jpg")], [FileInfo(), FileInfo()])
    1
    """
    names = [] if text is None else [name.strip() for name in text.split(",")]
    criteria = tuple(_criterion(name) for name in names)
    return KeepBest(criteria, needs_files=any(name in ("resolution", "size") for name in names))


def _criterion(name: str) -> Criterion:
    if name == "resolution":
        return lambda _, file: file.width * file.height
    if name == "size":
        return lambda _, file: file.num_bytes
    if name.startswith("name=") and len(name) > len("name="):
        return lambda item, _: fnmatchcase(item.key, name[len("name=") :])
    raise InputError(f"Items are kept by resolution, size or name=PATTERN, with commas between them, not by {name!r}.")


def read_files(paths: Iterable[Path | None]) -> list[FileInfo]:
    """Return the sizes of image files from their headers; nothing is known of those that cannot be read."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(_read_file, paths))


def _read_file(path: Path | None) -> FileInfo:
    try:
        num_bytes = 0 if path is None else path.stat().st_size
    except OSError:
        num_bytes = 0
    if path is None or not num_bytes:
        return FileInfo()
    try:
        with Image.open(path, formats=FORMATS) as image:
            return FileInfo(*image.size, num_bytes)
    except Exception:  # damaged headers make Pillow raise nearly anything
        return FileInfo(num_bytes=num_bytes)
