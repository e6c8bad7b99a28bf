"""Thread pools whose results do not depend on the number of threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import threadpool_limits

_AHEAD = 4  # items per thread that are begun before the caller asks for them

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_threads() -> int:
    """Return the number of cores for this process; processes that torchrun started on one machine share its cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local_world_size = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // max(1, int(local_world_size))) if local_world_size.isdecimal() else cores


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Run each matrix product on the calling thread, so that its rounding does not depend on the core count."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield `function(item)` in the order of `items`, computed on `threads` threads.

    A caller that stops early cancels the items not yet started, so the first good result is the same for any number of
    threads. Items are begun only some ahead of the caller, so that results which wait take little memory.
    """
    if threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        for future in prefetch((pool.submit(function, item) for item in items), _AHEAD * threads):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


@cache
def _kept_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept_pool.cache_clear)  # a forked process has no threads of its parent


def leaf_map(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """Yield `function(item)` in the order of `items`, computed on threads that are kept, because starting them takes 0.1 ms.

    For short work that never waits for other work of these threads. The calling thread does the first item.
    """
    if threads == 1 or len(items) < 2:
        yield from map(function, items)
        return
    futures = [_kept_pool(threads).submit(function, item) for item in items[1:]]
    try:
        yield function(items[0])
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def over_slices(count: int, size: int, work: Callable[[slice], None], threads: int | None = None) -> None:
    """Run `work` on slices of `size` of `count` elements, on all cores or so many threads.

    >>> over_slices(3, 2, print, threads=1)
    slice(0, 2, None)
    slice(2, 3, None)
    """
    slices = [slice(first, min(first + size, count)) for first in range(0, count, size)]
    threads = max(1, min(available_threads() if threads is None else threads, len(slices)))

    def run(first: int) -> None:
        for part in slices[first::threads]:
            work(part)

    for _ in leaf_map(run, range(threads), threads):  # one task for each thread: to start many takes longer than the work
        pass


def prefetch(items: Iterable[Item], count: int) -> Iterator[Item]:
    """Yield the items in order, always `count` items ahead: for items that start work when created."""
    pending: deque[Item] = deque()
    for item in items:
        pending.append(item)
        if len(pending) > count:
            yield pending.popleft()
    yield from pending
