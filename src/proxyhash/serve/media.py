"""Small pictures of items, from the folders that an index was made from and from nowhere else."""

import errno
import os
import stat
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from proxyhash.index.local.items import Item
from proxyhash.serve.http import RefusalError

_GONE = "There is no picture of this item any more."


@dataclass(frozen=True)
class File:
    """The bytes of an image file and what tells it from others: where it is, its size, when it was modified."""

    content: bytes
    identity: tuple[str, int, int]


def read_file(item: Item, most: int) -> File:
    """Return the file of an item, if it lies in the folder that it was added from."""
    if item.path is None or item.root is None:
        raise RefusalError(404, "There is no picture of this item: it was added as a code.")
    try:
        handle = _open_inside(item.root, item.path)
    except (OSError, ValueError):
        raise RefusalError(404, _GONE) from None
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise RefusalError(404, _GONE)
    with os.fdopen(handle, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise RefusalError(422, f"The picture has more than {most:,} bytes, which is refused.")
    return File(content, (str(item.path), facts.st_size, facts.st_mtime_ns))


def _open_inside(root: Path, path: Path) -> int:
    """Open a file below a folder. Links may lead to other places in the folder, but not out of it.

    The path is resolved first and then walked from the folder with links forbidden, so that one that is put in its way
    between the two makes it fail.
    """
    folder = root.resolve(strict=True)
    parts = path.resolve(strict=True).relative_to(folder).parts
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, part in enumerate(parts):
            kind = os.O_NONBLOCK if number == len(parts) - 1 else os.O_DIRECTORY
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=handle)
            os.close(handle)
            handle = inner
    except OSError:
        os.close(handle)
        raise
    if not parts:
        os.close(handle)
        raise OSError(errno.EISDIR, "a folder")
    return handle


class Thumbnails:
    """Small pictures that were made before, the least recently used forgotten first."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[tuple[object, ...], bytes] = OrderedDict()

    def get(self, identity: tuple[object, ...]) -> bytes | None:
        """Return a picture, if it is kept."""
        if identity in self._kept:
            self._kept.move_to_end(identity)
        return self._kept.get(identity)

    def keep(self, identity: tuple[object, ...], picture: bytes) -> None:
        """Keep a picture."""
        self._size += len(picture) - len(self._kept.pop(identity, b""))
        self._kept[identity] = picture
        while self._size > self._most:
            self._size -= len(self._kept.popitem(last=False)[1])
