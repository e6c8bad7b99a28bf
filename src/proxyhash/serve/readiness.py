"""Readiness of the search process, by a ping that many probes share."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor

from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers.search_process import SearchProcess

_PING_SECONDS = 2.0


class Readiness:
    """Asks a search process whether it answers; a hung one does not, nor one that is being replaced."""

    def __init__(self, process: SearchProcess) -> None:
        self._process = process
        self._thread = ThreadPoolExecutor(1, "readiness")
        self._ping: Future[list[bytes | Exception]] | None = None

    async def check(self) -> None:
        """Raise BusyError unless the search process answers within two seconds."""
        if self._ping is None or self._ping.done():
            self._ping = self._thread.submit(self._process.search, [])
        try:
            async with asyncio.timeout(_PING_SECONDS):
                await asyncio.shield(asyncio.wrap_future(self._ping))
        except TimeoutError:
            raise BusyError("The search process does not answer; it is replaced if that does not change.") from None
        if self._process.state != "ready":
            raise BusyError("The search process is being replaced; try again in a moment.")

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False)
