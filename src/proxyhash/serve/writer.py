"""Changes of an index, by one thread with a connection of its own: a writer may wait for others, searches must not."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from proxyhash.index.base import Index
from proxyhash.serve.errors import BusyError
from proxyhash.utils.errors import InputError

Result = TypeVar("Result")

_MAX_WAITING = 64  # changes, each with its body in memory


class IndexWriter:
    """Runs changes one after another; each is on disk when it returns."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._index: Index | None = None
        self._thread = ThreadPoolExecutor(1, "writing")
        self._waiting = 0

    async def run(self, change: Callable[[Index], Result]) -> Result:
        """Apply a change and return its result."""
        if self._waiting >= _MAX_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._apply, change)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Finish the change that is being written."""
        self._thread.shutdown()
        if self._index is not None:
            self._index.close()

    def _apply(self, change: Callable[[Index], Result]) -> Result:
        try:
            if self._index is None:
                self._index = Index.open(self._location)
            return change(self._index)
        except InputError as error:
            if isinstance(error.__cause__, sqlite3.Error):  # the disk or another writer, not the request
                raise BusyError("The index cannot be written to now; nothing was changed, try again.") from error
            raise
