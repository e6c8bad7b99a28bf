"""Threads that do not change results: the work is cut into pieces before anyone asks how many threads there are."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_threads() -> int:
    """Return how many cores this process may use; processes that torchrun started on one machine share its cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    together = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, cores // max(1, int(together))) if together.isdecimal() else cores


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Make each matrix product run on the thread that asks for it: its rounding then cannot depend on the core count."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def ordered_map(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield `function(item)` in the order of `items`, computed on `threads` threads.

    Whoever stops reading early cancels what has not begun, so "the first result that is good enough" is the same
    result on any number of threads.
    """
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(function, item) for item in items]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def lookahead(items: Iterable[Item], count: int) -> Iterator[Item]:
    """Yield the items in order, each only once the `count` after it have been made: for items that start work when made."""
    waiting: deque[Item] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting
