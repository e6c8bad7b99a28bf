"""Micro-batching: queries that arrive together are processed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from proxyhash.serve.errors import BusyError

Query = TypeVar("Query")
Result = TypeVar("Result")

Work = Callable[[Sequence[Query]], Sequence[Result | Exception]]
"""Function that processes a batch, and returns the result of each query, or its error."""


class Batcher(Generic[Query, Result]):
    """A thread that processes queries in batches, behind a queue of bounded length.

    A query that finds the thread idle is processed at once. Those that arrive meanwhile form the next batch.

    Parameters
    ----------
    name
        Name of the thread.
    work
        Function that processes a batch, in the thread.
    max_batch_size, max_queue_size
        Largest number of queries in a batch, and in the queue.
    on_batch
        Called with the size of each batch, in the thread of the event loop.

    Examples
    --------
    >>> batcher = Batcher("squares", lambda queries: [query**2 for query in queries], max_batch_size=8, max_queue_size=64)
    >>> asyncio.run(batcher.submit(3))
    9
    >>> batcher.close()
    """

    def __init__(
        self,
        name: str,
        work: Work[Query, Result],
        *,
        max_batch_size: int,
        max_queue_size: int,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work, self._on_batch = work, on_batch
        self._max_batch_size, self._max_queue_size = max_batch_size, max_queue_size
        self._thread = ThreadPoolExecutor(1, name)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: deque[tuple[Query, asyncio.Future[Result]]] = deque()
        self._is_running = False
        self._is_closed = False

    def __len__(self) -> int:
        """Return the number of queries in the queue."""
        return len(self._queue)

    async def submit(self, query: Query) -> Result:
        """Return the result of a query.

        Raises
        ------
        BusyError
            If the queue is full, or closed.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the one before has ended, perhaps while a batch was processed
            self._loop, self._is_running = loop, False
            self._queue.clear()
        if self._is_closed or len(self._queue) >= self._max_queue_size:
            raise BusyError
        future: asyncio.Future[Result] = loop.create_future()
        self._queue.append((query, future))
        if not self._is_running:
            self._is_running = True
            loop.call_soon(self._start_batch, loop)  # queries of the same turn of the loop join the batch
        try:
            return await future
        finally:
            del future  # its error refers to this frame; the cycle would keep the request in memory

    def close(self) -> None:
        """Wait for the batch that is being processed; queries in the queue are refused."""
        self._is_closed = True
        self._thread.shutdown()

    def _start_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._take_batch()
        self._is_running = bool(batch)
        if not batch:
            return
        queries, futures = zip(*batch, strict=True)
        if self._is_closed:
            _resolve(futures, [BusyError() for _ in futures])
            loop.call_soon(self._start_batch, loop)
            return
        running = loop.run_in_executor(self._thread, self._work, queries)
        running.add_done_callback(lambda done: self._finish_batch(loop, futures, done))
        self._on_batch(len(batch))

    def _take_batch(self) -> list[tuple[Query, asyncio.Future[Result]]]:
        """Return the next queries; those that nobody waits for are dropped."""
        batch: list[tuple[Query, asyncio.Future[Result]]] = []
        while self._queue and len(batch) < self._max_batch_size:
            query, future = self._queue.popleft()
            if not future.done():
                batch.append((query, future))
        return batch

    def _finish_batch(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: "Sequence[asyncio.Future[Result]]",
        done: "asyncio.Future[Sequence[Result | Exception]]",
    ) -> None:
        if loop is self._loop:
            self._start_batch(loop)  # first, so that the thread does not wait for the results to be delivered
        error = done.exception()
        if error is None and len(done.result()) != len(futures):
            error = RuntimeError(f"{len(futures)} queries got {len(done.result())} results.")
        _resolve(futures, done.result() if error is None else [error] * len(futures))


def _resolve(futures: "Sequence[asyncio.Future[Result]]", results: Sequence[Result | BaseException]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
