"""Questions that arrive together are answered together: one scan, or one run of a network, for all of them.

Nobody waits for company: a question that finds the worker idle is answered at once, and those that come while it is being
answered make up the next batch.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from proxyhash.serve.http import busy

Question = TypeVar("Question")
Reply = TypeVar("Reply")

Work = Callable[[Sequence[Question]], Sequence[Reply | Exception]]
"""Answers several questions, in order; what is wrong with one is its answer."""


class Batcher(Generic[Question, Reply]):
    """One worker thread, and a queue of bounded length before it."""

    def __init__(
        self,
        name: str,
        work: Work[Question, Reply],
        *,
        together: int,
        waiting: int,
        answered: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Let `work` answer up to `together` questions at once; `answered` is told how many it were."""
        self._work, self._together, self._most, self._answered = work, together, waiting, answered
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: deque[tuple[Question, asyncio.Future[Reply]]] = deque()
        self._at_work = False

    def __len__(self) -> int:
        """Return how many questions wait."""
        return len(self._waiting)

    async def ask(self, question: Question) -> Reply:
        """Return the answer to a question, or refuse it if too many wait already."""
        if len(self._waiting) >= self._most:
            raise busy()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append((question, future))
        if not self._at_work:
            self._at_work = True
            loop.call_soon(self._begin, loop)  # who arrives in the same moment still comes along
        return await future

    def close(self) -> None:
        """Wait for the batch that is being answered."""
        self._thread.shutdown()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        batch: list[tuple[Question, asyncio.Future[Reply]]] = []
        while self._waiting and len(batch) < self._together:
            question, future = self._waiting.popleft()
            if not future.done():  # nobody waits any more for one that took too long
                batch.append((question, future))
        self._at_work = bool(batch)
        if batch:
            self._answered(len(batch))
            questions = [question for question, _ in batch]
            task = loop.run_in_executor(self._thread, self._work, questions)
            task.add_done_callback(lambda done: self._deliver(loop, [future for _, future in batch], done))

    def _deliver(
        self,
        loop: asyncio.AbstractEventLoop,
        futures: list[asyncio.Future[Reply]],
        done: "asyncio.Future[Sequence[Reply | Exception]]",
    ) -> None:
        self._begin(loop)
        error = done.exception()
        replies: Sequence[Reply | BaseException] = [error] * len(futures) if error is not None else done.result()
        for future, reply in zip(futures, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(reply)
            else:
                future.set_result(reply)
