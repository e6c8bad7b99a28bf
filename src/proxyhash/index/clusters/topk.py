"""Bounded heaps of the k nearest codes of each query, the farthest at the root.

A rank packs the distance, the refinement distance and the item id, see `Hits`: one comparison also settles ties.
"""

from typing import NamedTuple

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.hits import DISTANCE_SHIFT, ID_BITS, NO_ROW
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.index.refinement.distances import RefinedRows, without_refinement
from proxyhash.utils.jit import jit

_DISTANCE_SHIFT, _ID_BITS = np.uint64(DISTANCE_SHIFT), np.uint64(ID_BITS)


class TopK(NamedTuple):
    """Heaps of Q queries: the first `counts` (Q,) of `ranks` and `slots` (Q, k); `limit` (Q,) is the k-th distance.

    `rows` settle ties in distance.
    """

    ranks: Words
    slots: Int64s
    counts: Int64s
    limit: Int64s
    rows: RefinedRows


def empty_topk(queries: int, k: int, bits: int, rows: RefinedRows | None = None) -> TopK:
    """Return empty heaps for codes of so many bits; without rows, ties in distance are ordered by item id."""
    ranks, slots = np.empty((queries, k), np.uint64), np.empty((queries, k), np.int64)
    rows = without_refinement(queries) if rows is None else rows
    return TopK(ranks, slots, np.zeros(queries, np.int64), np.full(queries, bits, np.int64), rows)


@jit(nogil=True, skip_refcounts=True, inline="always")
def pack_rank(distance: Int, item_id: Int) -> Int:
    """Return distance and item id in one number, without a refinement."""
    return (np.uint64(distance) << _DISTANCE_SHIFT) | np.uint64(item_id)


@jit(nogil=True, skip_refcounts=True, inline="always")
def refine_rank(rank: Int, refinement: Int) -> Int:
    """Return a rank with a refinement distance."""
    return rank | (np.uint64(refinement) << _ID_BITS)


@jit(nogil=True, skip_refcounts=True, inline="always")
def kth_refinement(top: TopK, q: Int) -> Int:
    """Return the refinement distance of the k-th code of query q, which holds k."""
    return np.int64(top.ranks[q, 0] >> _ID_BITS) & NO_ROW


@jit(nogil=True, skip_refcounts=True, inline="always")
def push(top: TopK, q: Int, rank: Int, slot: Int) -> None:
    """Keep a code for query q if it is among its k nearest so far."""
    ranks, slots, k = top.ranks[q], top.slots[q], top.ranks.shape[1]
    if top.counts[q] < k:
        _sift_up(ranks, slots, top.counts[q], rank, slot)
        top.counts[q] += 1
    elif rank < ranks[0]:
        _replace_root(ranks, slots, rank, slot)
    if top.counts[q] == k:
        top.limit[q] = ranks[0] >> _DISTANCE_SHIFT


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
