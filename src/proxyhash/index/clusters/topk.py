"""Bounded heaps of the k nearest codes of each query, the farthest at the root.

A rank packs the distance into its high half and the item id into its low half: one comparison also settles ties.
"""

from typing import NamedTuple

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.utils.jit import jit

_HALF = np.uint64(32)


class TopK(NamedTuple):
    """Heaps of Q queries: the first `counts` (Q,) of `ranks` and `slots` (Q, k); `limit` (Q,) is the k-th distance."""

    ranks: Words
    slots: Int64s
    counts: Int64s
    limit: Int64s


def empty_topk(queries: int, k: int, bits: int) -> TopK:
    """Return empty heaps for codes of so many bits."""
    ranks, slots = np.empty((queries, k), np.uint64), np.empty((queries, k), np.int64)
    return TopK(ranks, slots, np.zeros(queries, np.int64), np.full(queries, bits, np.int64))


@jit(nogil=True, skip_refcounts=True, inline="always")
def pack_rank(distance: Int, item_id: Int) -> Int:
    """Return distance and item id in one number."""
    return (np.uint64(distance) << np.uint64(32)) | np.uint64(item_id)


@jit(nogil=True, skip_refcounts=True)
def push(top: TopK, q: Int, rank: Int, slot: Int) -> None:
    """Keep a code for query q if it is among its k nearest so far."""
    ranks, slots, k = top.ranks[q], top.slots[q], top.ranks.shape[1]
    if top.counts[q] < k:
        _sift_up(ranks, slots, top.counts[q], rank, slot)
        top.counts[q] += 1
    elif rank < ranks[0]:
        _replace_root(ranks, slots, rank, slot)
    if top.counts[q] == k:
        top.limit[q] = ranks[0] >> _HALF


@jit(nogil=True)
def sort_topk(top: TopK) -> None:
    """Sort each query's codes, nearest first; the arrays are heaps no longer."""
    for q in range(len(top.ranks)):
        order = np.argsort(top.ranks[q])
        top.ranks[q], top.slots[q] = top.ranks[q][order], top.slots[q][order]


@jit(nogil=True, skip_refcounts=True)
def _sift_up(ranks: Words, slots: Int64s, leaf: Int, rank: Int, slot: Int) -> None:
    """Add a code to a heap that holds `leaf` codes."""
    while leaf > 0 and ranks[(leaf - 1) // 2] < rank:
        parent = (leaf - 1) // 2
        ranks[leaf], slots[leaf] = ranks[parent], slots[parent]
        leaf = parent
    ranks[leaf], slots[leaf] = rank, slot


@jit(nogil=True, skip_refcounts=True)
def _replace_root(ranks: Words, slots: Int64s, rank: Int, slot: Int) -> None:
    """Replace the farthest code of a full heap."""
    root, count = 0, len(ranks)
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and ranks[child + 1] > ranks[child]:
            child += 1
        if ranks[child] <= rank:
            break
        ranks[root], slots[root] = ranks[child], slots[child]
        root = child
    ranks[root], slots[root] = rank, slot
