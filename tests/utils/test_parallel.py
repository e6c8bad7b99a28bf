import multiprocessing
import os
import sys
import threading

import pytest

from proxyhash.utils.parallel import leaf_map


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(leaf_map(lambda number: number**2, list(range(20)), threads)) == [number**2 for number in range(20)]


def test_the_caller_works_beside_kept_threads() -> None:
    both = threading.Barrier(2, timeout=10)

    def work(_: int) -> int:
        both.wait()  # two threads must be here at the same time
        return threading.get_ident()

    first, second = leaf_map(work, [0, 1], 2)
    assert first == threading.get_ident() != second


def test_an_error_reaches_the_caller_and_the_threads_go_on() -> None:
    with pytest.raises(ZeroDivisionError):
        list(leaf_map(lambda number: 1 / number, [1, 0, 2], 2))
    assert list(leaf_map(abs, [-1, -2, -3], 2)) == [1, 2, 3]


def _in_child(queue: "multiprocessing.Queue[list[int]]") -> None:
    queue.put(list(leaf_map(abs, [-1, -2, -3], 2)))


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="needs fork")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    list(leaf_map(abs, [-1, -2], 2))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=20) == [1, 2, 3]
    child.join()
