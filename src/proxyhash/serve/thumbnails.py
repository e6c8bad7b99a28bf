"""Thumbnails of items, from the folders that an index was made from and from nowhere else."""

import asyncio
import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cachetools import LRUCache
from fastapi import HTTPException

from proxyhash.index.local.items import Item
from proxyhash.serve.workers.decoder import ThumbnailJob
from proxyhash.serve.workers.decoder_pool import DecoderPool

_MAX_FILES = 8  # in memory at a time
_GONE = "The image file of this item is not there any more."


@dataclass(frozen=True)
class Thumbnail:
    """A JPEG, and a tag that changes with the file."""

    data: bytes
    etag: str


@dataclass(frozen=True)
class ImageFile:
    """The bytes of a file, with its path, size and modification time."""

    data: bytes
    identity: tuple[str, int, int]


class Thumbnails:
    """Makes thumbnails in decoder processes, and keeps the most recently used in memory."""

    def __init__(self, decoders: DecoderPool, *, max_file_bytes: int, cache_bytes: int) -> None:
        self._decoders, self._max_file_bytes = decoders, max_file_bytes
        self._cache: LRUCache[tuple[object, ...], bytes] = LRUCache(cache_bytes, getsizeof=len)
        self._slots = asyncio.Semaphore(_MAX_FILES)

    async def get(self, item: Item, size: int) -> Thumbnail:
        """Return the thumbnail of an item that fits a square."""
        async with self._slots:
            file = await asyncio.to_thread(read_image_file, item, self._max_file_bytes)
            identity = (*file.identity, size)
            data = self._cache.get(identity)
            if data is None:
                data = (await self._decoders.decode(ThumbnailJob(size), file.data)).tobytes()
                if len(data) <= self._cache.maxsize:
                    self._cache[identity] = data
        return Thumbnail(data, f'"{hashlib.blake2b(repr(identity).encode(), digest_size=12).hexdigest()}"')


def read_image_file(item: Item, max_bytes: int) -> ImageFile:
    """Return the file of an item, if it is inside the folder that the item was added from."""
    if item.path is None or item.root is None or not item.has_image:
        raise HTTPException(404, "This item has no image: it was added as a code or a vector.")
    try:
        descriptor = _open_inside(item.root, item.path)
    except (OSError, ValueError):
        raise HTTPException(404, _GONE) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise HTTPException(404, _GONE)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise HTTPException(422, f"The image file has more than {max_bytes:,} bytes.")
    return ImageFile(data, (str(item.path), status.st_size, status.st_mtime_ns))


def _open_inside(root: Path, path: Path) -> int:
    """Open a file below a folder. Links may lead to other files in the folder, but not out of it.

    The path is resolved first and then opened step by step without following links, so a link that is created in
    between makes it fail. Windows cannot open files below an open folder; there the path is resolved again instead.
    """
    folder, resolved = root.resolve(strict=True), path.resolve(strict=True)
    parts = resolved.relative_to(folder).parts
    if not _can_open_stepwise():
        return _open_resolved(resolved)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for number, part in enumerate(parts):
            kind = os.O_NONBLOCK if number == len(parts) - 1 else os.O_DIRECTORY
            inner = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | kind, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
    except OSError:
        os.close(descriptor)
        raise
    if not parts:
        os.close(descriptor)
        raise OSError(errno.EISDIR, "a folder")
    return descriptor


def _can_open_stepwise() -> bool:
    return hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW") and os.open in os.supports_dir_fd


def _open_resolved(path: Path) -> int:
    """Open a path without links; raise OSError if a part of it is a link by now, or another file."""
    flags = (getattr(os, name, 0) for name in ("O_BINARY", "O_NOINHERIT", "O_NONBLOCK"))
    descriptor = os.open(path, os.O_RDONLY | sum(flags))
    if not _is_open_file(descriptor, path):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "a link was created meanwhile")
    return descriptor


def _is_open_file(descriptor: int, path: Path) -> bool:
    """Return whether a path has no links, and is the file that was opened."""
    try:
        return path.resolve(strict=True) == path and os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
