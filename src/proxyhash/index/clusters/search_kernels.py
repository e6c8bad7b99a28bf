"""Compiled searches of grouped codes that look only at blocks that can matter: see `groups`."""

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.index.clusters.candidates import (
    Near,
    Visitors,
    apart,
    codes_in,
    distance_at,
    find_near,
    in_reach,
    lowest,
    may_hold,
    nothing_near,
    visitors,
    welcome,
)
from proxyhash.index.clusters.layout import Groups
from proxyhash.index.clusters.topk import Best, key_of, offer, put_in_order
from proxyhash.index.item_ids import Longs, Whole, position_at
from proxyhash.utils.jit import jit

TILE = 8  # blocks that a visitor passes over before the next one's turn: they stay in the nearest cache


@jit(nogil=True)
def nearest(queries: Words, groups: Groups, best: Best, looked: Longs) -> None:
    """Find the k nearest of each of `queries` (Q, W), k <= N, best first; `looked` (Q,) counts the codes compared.

    Each query first visits the group with the nearest centre, and the next ones until it holds k, which bring its k-th
    distance down; then all that still need a group visit it together.
    """
    guests, near = visitors(len(queries), queries.shape[1]), nothing_near(queries.shape[1])
    visited = _visit_alone(queries, groups, guests, best, looked, near)
    _visit_together(queries, groups, visited, guests, best, looked, near)
    put_in_order(best)


@jit(nogil=True)
def _visit_alone(queries: Words, groups: Groups, guests: Visitors, best: Best, looked: Longs, near: Near) -> Longs:
    """Let each query visit the nearest groups until it holds k; return the rank of the last of them (Q,)."""
    visited = np.full(len(queries), -1, np.int64)
    for q in range(len(queries)):
        while best.held[q] < best.keys.shape[1]:
            visited[q] = _next_rank(queries, q, groups.centres, visited[q])
            welcome(guests, 0, queries, q, groups, visited[q] & 0xFFFF)
            _visit(groups, visited[q] & 0xFFFF, guests, 1, best, looked, near)
    return visited


@jit(nogil=True, skip_refcounts=True, inline="always")
def _rank(centre: Whole, group: Whole) -> Whole:
    """Return what groups are ordered by for a query: the distance of their centres, then their numbers."""
    return (np.int64(centre) << 16) + group


@jit(nogil=True, skip_refcounts=True)
def _next_rank(queries: Words, q: Whole, centres: Words, after: Whole) -> Whole:
    """Return the rank of the group that is nearest to a query, after one of some rank."""
    least: Whole = np.int64(2**60)
    for group in range(len(centres)):
        rank = _rank(apart(queries, q, centres, group), group)
        if after < rank < least:
            least = rank
    return least


@jit(nogil=True, skip_refcounts=True)
def _visit_together(
    queries: Words, groups: Groups, visited: Longs, guests: Visitors, best: Best, looked: Longs, near: Near
) -> None:
    """Let all queries visit the groups that they have not visited, which have a higher rank."""
    for group in range(len(groups.centres)):
        coming = 0
        for q in range(len(queries)):
            centre = apart(queries, q, groups.centres, group)
            if in_reach(groups.spans, group, centre, best.limit[q]) and _rank(centre, group) > visited[q]:
                welcome(guests, coming, queries, q, groups, group)
                coming += 1
        _visit(groups, group, guests, coming, best, looked, near)


@jit(nogil=True, skip_refcounts=True)
def _visit(groups: Groups, group: Whole, guests: Visitors, coming: Whole, best: Best, looked: Longs, near: Near) -> None:
    """Let visitors pass over those blocks of a group that can hold one of their k nearest.

    A shell is left out only if its bound is strictly above the k-th distance: an equal one may hold an earlier position.
    """
    last = groups.starts[group + 1]
    for begin in range(groups.starts[group], last, TILE):
        end = min(begin + TILE, last)
        low, high = groups.shells[begin, 0], groups.shells[end - 1, 1]
        for visitor in range(coming):
            q, centre = guests.query[visitor], guests.centre[visitor]
            if low - centre <= best.limit[q] and centre - high <= best.limit[q]:
                for block in range(begin, end):
                    if in_reach(groups.shells, block, centre, best.limit[q]):
                        looked[q] += codes_in(groups, block)
                        if may_hold(groups, block, guests, visitor, best.limit[q]):
                            find_near(groups, block, guests, visitor, best.limit[q], near)
                            _take(groups, block, near, best, q)


@jit(nogil=True, skip_refcounts=True)
def _take(groups: Groups, block: Whole, near: Near, best: Best, q: Whole) -> None:
    """Offer all codes of a block that are marked."""
    for word in range(4):
        left = near.marks[word]
        while left:
            bit = lowest(left)
            left &= left - np.uint64(1)
            distance, place = distance_at(near, word, bit), block * BLOCK + 64 * word + bit
            if distance <= best.limit[q]:
                offer(best, q, key_of(distance, position_at(groups.positions, place)), place)


@jit(nogil=True)
def within(queries: Words, groups: Groups, radius: Whole, ends: Longs, keys: Words, places: Longs, write: bool) -> None:
    """Advance `ends` (Q,) by the codes within `radius` of each query; if `write`, put keys and places there."""
    guests, near = visitors(len(queries), queries.shape[1]), nothing_near(queries.shape[1])
    for group in range(len(groups.centres)):
        coming = 0
        for q in range(len(queries)):
            if in_reach(groups.spans, group, apart(queries, q, groups.centres, group), radius):
                welcome(guests, coming, queries, q, groups, group)
                coming += 1
        for block in range(groups.starts[group], groups.starts[group + 1]):
            for visitor in range(coming):
                reach = in_reach(groups.shells, block, guests.centre[visitor], radius)
                if reach and may_hold(groups, block, guests, visitor, radius):
                    find_near(groups, block, guests, visitor, radius, near)
                    _collect(groups, block, near, guests.query[visitor], ends, keys, places, write)


@jit(nogil=True, skip_refcounts=True)
def _collect(
    groups: Groups, block: Whole, near: Near, q: Whole, ends: Longs, keys: Words, places: Longs, write: bool
) -> None:
    """Advance `ends[q]` by the codes of a block that are marked."""
    for word in range(4):
        left = near.marks[word]
        while left:
            bit = lowest(left)
            left &= left - np.uint64(1)
            if write:
                place = block * BLOCK + 64 * word + bit
                keys[ends[q]] = key_of(distance_at(near, word, bit), position_at(groups.positions, place))
                places[ends[q]] = place
            ends[q] += 1
