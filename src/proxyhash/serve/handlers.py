"""What clients can ask for, each a handler that is given the query and the body of a request, already checked."""

import asyncio
import hashlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.index.local.index import LocalIndex
from proxyhash.serve import browsing, media, messages, searching
from proxyhash.serve.batching import Batcher
from proxyhash.serve.decoder import Thumbnail
from proxyhash.serve.decoding import Decoders
from proxyhash.serve.http import Answer, RefusalError, busy
from proxyhash.serve.searcher import Query
from proxyhash.serve.searching import query_of
from proxyhash.serve.settings import Limits
from proxyhash.serve.uploads import Uploads
from proxyhash.utils.errors import InputError

Result = TypeVar("Result")


class Searching:
    """Search by code, by key, by image."""

    def __init__(self, index: LocalIndex, searches: Batcher[Query, bytes], uploads: Uploads, limits: Limits) -> None:
        self._index, self._searches, self._uploads, self._depth = index, searches, uploads, limits.depth

    async def by_code(self, _: None, asked: messages.CodeSearch) -> Answer | messages.SearchAnswer:
        """Search with a code."""
        return await self._search(query_of(bytes.fromhex(asked.code), asked), asked.label)

    async def by_key(self, _: None, asked: messages.KeySearch) -> Answer | messages.SearchAnswer:
        """Search with an item of the index; it finds itself too."""
        code = await asyncio.to_thread(browsing.code_of, self._index, asked.key)
        return await self._search(query_of(code, asked), asked.label)

    async def by_image(self, asked: messages.ImageSearch, body: bytes) -> Answer | messages.SearchAnswer:
        """Search with an image."""
        nu = await self._uploads.embedding(body)
        return await self._search(query_of(nu, asked, asked.rerank), asked.label)

    async def _search(self, query: Query, label: str) -> Answer | messages.SearchAnswer:
        if label:
            return await searching.labeled(self._searches.ask, query, label, self._depth)
        return Answer(await self._searches.ask(query))


class Browsing:
    """Look at items and at their pictures."""

    def __init__(self, index: LocalIndex, decoders: Decoders, limits: Limits, *, writable: bool) -> None:
        self._index, self._decoders, self._limits = index, decoders, limits
        self._facts = browsing.Facts(index, limits.body_bytes, writable=writable)
        self._thumbnails = media.Thumbnails(limits.thumbnail_bytes)

    async def info(self, _: None, __: None) -> messages.InfoAnswer:
        """Say what the service offers."""
        return await asyncio.to_thread(self._facts.now)

    async def item(self, asked: messages.OneKey, _: None) -> messages.ItemAnswer:
        """Return what is known of an item."""
        return browsing.listed(await asyncio.to_thread(browsing.item_of, self._index, asked.key))

    async def sample(self, asked: messages.Count, _: None) -> messages.ItemsAnswer:
        """Return some items by chance: something to begin with."""
        found = await asyncio.to_thread(browsing.by_chance, self._index, asked.count)
        return messages.ItemsAnswer([browsing.listed(item) for item in found])

    async def image(self, asked: messages.ImageOf, _: None) -> Answer:
        """Return a small picture of an item."""
        item = await asyncio.to_thread(browsing.item_of, self._index, asked.key)
        file = await asyncio.to_thread(media.read_file, item, self._limits.body_bytes)
        identity = (*file.identity, asked.side)
        picture = self._thumbnails.get(identity)
        if picture is None:
            picture = (await self._decoders.do(Thumbnail(asked.side), file.content)).tobytes()
            self._thumbnails.keep(identity, picture)
        tag = hashlib.blake2b(repr(identity).encode(), digest_size=12).hexdigest()
        return Answer(picture, kind="image/jpeg", headers={"Cache-Control": "private, max-age=300", "ETag": f'"{tag}"'})


class Editing:
    """Add and remove items, over a connection of its own: a writer may wait for others, and searches must not."""

    def __init__(self, folder: Path, uploads: Uploads) -> None:
        self._folder, self._uploads = folder, uploads
        self._index: LocalIndex | None = None
        self._thread = ThreadPoolExecutor(1, "writing")

    async def add_codes(self, _: None, asked: messages.AddCodes) -> messages.AddAnswer:
        """Add items by their codes."""
        if len({len(item.code) for item in asked.items}) > 1:
            raise RefusalError(422, "All codes of an index have one length; these have several.")
        codes = np.stack([_packed(item.code) for item in asked.items])
        return await self._add(codes, [item.key for item in asked.items], [item.labels for item in asked.items])

    async def add_image(self, asked: messages.AddImage, body: bytes) -> messages.AddAnswer:
        """Add an image; only its code is kept."""
        nu = await self._uploads.embedding(body)
        return await self._add(nu[None], [asked.key], [asked.label])

    async def remove(self, _: None, asked: messages.RemoveKeys) -> messages.RemoveAnswer:
        """Remove items."""
        return messages.RemoveAnswer(await self._write(lambda index: index.remove(asked.keys)))

    def close(self) -> None:
        """Finish what is being written."""
        self._thread.shutdown()
        if self._index is not None:
            self._index.close()

    async def _add(
        self, rows: NDArray[np.float32] | Packed, keys: list[str], labels: list[tuple[str, ...]]
    ) -> messages.AddAnswer:
        done = await self._write(lambda index: index.add(rows, keys, labels))
        return messages.AddAnswer(done.added, done.replaced)

    async def _write(self, change: Callable[[LocalIndex], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._changed, change)

    def _changed(self, change: Callable[[LocalIndex], Result]) -> Result:
        try:
            if self._index is None:
                self._index = LocalIndex.open_folder(self._folder)
            return change(self._index)
        except InputError as error:
            if isinstance(error.__cause__, sqlite3.Error):  # not what was sent, but the disk, or another writer
                raise busy("The index cannot be written to just now; nothing was changed, so try again.") from error
            raise


def _packed(code: str) -> Packed:
    return np.frombuffer(bytes.fromhex(code), np.uint8)
