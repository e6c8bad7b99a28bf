"""Micro-batching of queries."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress

import pytest

from proxyhash.serve.batching import Batcher
from proxyhash.serve.errors import BusyError


class Gate:
    """Work that waits until the gate is open, and records the sizes of its batches."""

    def __init__(self) -> None:
        self.open, self.started, self.sizes = threading.Event(), threading.Event(), list[int]()

    def __call__(self, queries: Sequence[int]) -> list[int | Exception]:
        self.started.set()
        assert self.open.wait(60)
        self.sizes.append(len(queries))
        return [ValueError("odd") if query % 2 else 10 * query for query in queries]

    async def wait_started(self) -> None:
        await asyncio.to_thread(self.started.wait, 60)


async def queued(batcher: "Batcher[int, int]", queries: Sequence[int]) -> list["asyncio.Task[int]"]:
    """Submit queries, and return when they are in the queue or refused."""
    tasks = [asyncio.create_task(batcher.submit(query)) for query in queries]
    await asyncio.sleep(0)
    return tasks


def test_queries_that_arrive_during_a_batch_form_the_next_one() -> None:
    work, told = Gate(), list[int]()

    async def submit() -> list[int | BaseException]:
        batcher = Batcher("test", work, max_batch_size=3, max_queue_size=5, on_batch=told.append)
        tasks = await queued(batcher, [0])
        await work.wait_started()
        tasks += await queued(batcher, range(2, 8))
        assert len(batcher) == 5
        work.open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        batcher.close()
        return list(results)

    results = asyncio.run(submit())
    assert work.sizes == told == [1, 3, 2]
    assert results[:2] == [0, 20]
    assert str(results[2]) == "odd"
    refused = results[-1]
    assert isinstance(refused, BusyError)
    assert (str(refused), refused.retry_after) == ("The service is busy; try again in a moment.", 1)


def test_queries_of_one_turn_of_the_loop_share_a_batch() -> None:
    work = Gate()
    work.open.set()

    async def submit() -> None:
        batcher = Batcher("test", work, max_batch_size=8, max_queue_size=8)
        await asyncio.gather(*map(batcher.submit, [0, 2, 4]))
        batcher.close()

    asyncio.run(submit())
    assert work.sizes == [3]


@pytest.mark.parametrize("results", [None, []], ids=["exception", "too few results"])
def test_failed_batch_fails_each_query(results: list[int | Exception] | None) -> None:
    def work(_: Sequence[int]) -> list[int | Exception]:
        if results is None:
            raise RuntimeError("broken")
        return results

    async def submit() -> list[int | BaseException]:
        batcher = Batcher("test", work, max_batch_size=3, max_queue_size=5)
        return list(await asyncio.gather(*map(batcher.submit, range(3)), return_exceptions=True))

    failures = asyncio.run(submit())
    assert [type(failure) for failure in failures] == [RuntimeError] * 3


def test_cancelled_queries_are_skipped() -> None:
    work = Gate()

    async def submit() -> None:
        batcher = Batcher("test", work, max_batch_size=3, max_queue_size=5)
        first, *_ = await queued(batcher, [0])
        await work.wait_started()
        cancelled, kept = await queued(batcher, [2, 4])
        first.cancel()  # being processed
        cancelled.cancel()  # in the queue
        work.open.set()
        assert await kept == 40
        batcher.close()

    asyncio.run(submit())
    assert work.sizes == [1, 1]


def test_event_loops_may_follow_each_other() -> None:
    work = Gate()
    batcher = Batcher("test", work, max_batch_size=3, max_queue_size=5)

    async def abandon() -> None:
        await queued(batcher, [0])
        await work.wait_started()
        await queued(batcher, [2, 4])

    asyncio.run(abandon())  # ends while a batch is processed and queries wait
    work.open.set()
    assert asyncio.run(batcher.submit(6)) == 60
    assert asyncio.run(batcher.submit(8)) == 80
    batcher.close()
    assert work.sizes == [1, 1, 1]


def test_closed_batcher_refuses_queries() -> None:
    work = Gate()

    async def submit() -> list[int | BaseException]:
        batcher = Batcher("test", work, max_batch_size=3, max_queue_size=9)
        tasks = await queued(batcher, [0])
        await work.wait_started()
        tasks += await queued(batcher, [2, 4, 6, 8])
        work.open.set()
        batcher.close()
        tasks += await queued(batcher, [10])
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    first, *others = asyncio.run(submit())
    assert first == 0
    assert [type(other) for other in others] == [BusyError] * 5


class Payload:
    """A query or a result that can be referenced weakly."""


@pytest.mark.parametrize("outcome", ["result", "error", "failure", "cancelled"])
def test_finished_requests_are_not_referenced(outcome: str) -> None:
    alive: weakref.WeakSet[Payload] = weakref.WeakSet()

    def work(queries: Sequence[Payload]) -> list[Payload | Exception]:
        if outcome == "failure":
            raise RuntimeError
        out: list[Payload | Exception] = [ValueError() if outcome == "error" else Payload() for _ in queries]
        alive.update(item for item in out if isinstance(item, Payload))
        return out

    async def request(batcher: "Batcher[Payload, Payload]") -> None:
        payload = Payload()
        alive.add(payload)
        with suppress(ValueError, RuntimeError):
            await batcher.submit(payload)

    async def submit() -> None:
        batcher = Batcher("test", work, max_batch_size=3, max_queue_size=99)
        for _ in range(5):
            tasks = [asyncio.create_task(request(batcher)) for _ in range(8)]
            await asyncio.sleep(0)
            if outcome == "cancelled":
                tasks[-1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            del tasks
        await asyncio.to_thread(lambda: None)
        await asyncio.sleep(0.1)
        assert len(alive) == 0
        batcher.close()

    gc.collect()
    gc.disable()
    try:
        asyncio.run(submit())
    finally:
        gc.enable()
