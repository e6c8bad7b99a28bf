"""The best k of each query, kept while codes stream by: a heap with the worst on top.

A key is the distance in its high half and the position in its low: one comparison settles ties.
"""

from typing import NamedTuple

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Longs, Whole
from proxyhash.utils.jit import jit

_HALF = np.uint64(32)


class Best(NamedTuple):
    """The first `held` (Q,) of `keys` and of `places` (Q, k) are a heap; `limit` (Q,) is the largest distance of use."""

    keys: Words
    places: Longs
    held: Longs
    limit: Longs


def none_held(queries: int, k: int, bits: int) -> Best:
    """Return empty heaps."""
    keys, places = np.empty((queries, k), np.uint64), np.empty((queries, k), np.int64)
    return Best(keys, places, np.zeros(queries, np.int64), np.full(queries, bits, np.int64))


@jit(nogil=True, skip_refcounts=True, inline="always")
def key_of(distance: Whole, position: Whole) -> Whole:
    """Return distance and position in one."""
    return (np.uint64(distance) << np.uint64(32)) | np.uint64(position)


@jit(nogil=True, skip_refcounts=True)
def offer(best: Best, q: Whole, key: Whole, place: Whole) -> None:
    """Keep a code for query q if it is among the k best so far."""
    keys, places, k = best.keys[q], best.places[q], best.keys.shape[1]
    if best.held[q] < k:
        _add(keys, places, best.held[q], key, place)
        best.held[q] += 1
    elif key < keys[0]:
        _replace_worst(keys, places, key, place)
    if best.held[q] == k:
        best.limit[q] = keys[0] >> _HALF


@jit(nogil=True)
def put_in_order(best: Best) -> None:
    """Order what each query holds, best first; it is no heap any more."""
    for q in range(len(best.keys)):
        order = np.argsort(best.keys[q])
        best.keys[q], best.places[q] = best.keys[q][order], best.places[q][order]


@jit(nogil=True, skip_refcounts=True)
def _add(keys: Words, places: Longs, leaf: Whole, key: Whole, place: Whole) -> None:
    """Add one to the `leaf` that are held so far."""
    while leaf > 0 and keys[(leaf - 1) // 2] < key:
        parent = (leaf - 1) // 2
        keys[leaf], places[leaf] = keys[parent], places[parent]
        leaf = parent
    keys[leaf], places[leaf] = key, place


@jit(nogil=True, skip_refcounts=True)
def _replace_worst(keys: Words, places: Longs, key: Whole, place: Whole) -> None:
    """Put a better one in the place of the worst."""
    root, count = 0, len(keys)
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[root], places[root] = keys[child], places[child]
        root = child
    keys[root], places[root] = key, place
