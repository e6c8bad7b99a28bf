"""Compiled pieces of a visit: queries that come to a group, and what they learn from a block of it. See `groups`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import popcount
from proxyhash.index.clusters.bit_counts import AT_ONCE, DISTANCE_PLANES, add_differences, list_planes, reaches, reaches_far
from proxyhash.index.clusters.layout import Groups, Pairs
from proxyhash.index.item_ids import Longs, Whole
from proxyhash.utils.jit import jit

_PLANES_OF = np.array([(*(4 * i for i in range(8) if byte >> i & 1), *[0] * 8)[:8] for byte in range(256)], np.uint16)
"""(256, 8): where the planes of the bits that are set in a byte begin, then zeros"""


class Visitors(NamedTuple):
    """Up to Q queries that visit a group together, so that a block lies in the nearest cache when the next one comes."""

    query: Longs
    """(Q,): its number"""
    centre: Longs
    """(Q,): how far the centre of the group is from it"""
    differ: Words
    """(Q, W): the bits where it differs from the centre"""
    planes: NDArray[np.uint16]
    """(Q, 64 W + 8): where the planes of these bits begin in a block, counted in words; filled up with the last plane"""


class Near(NamedTuple):
    """The codes of a block within a limit: a mark for each (4,), and all distances as planes (13, 4)."""

    marks: Words
    distances: Words
    bits: Words
    """(64,): scratch space"""
    levels: int
    """planes that can hold a 1: one more than the logarithm of the length of codes"""


@jit(nogil=True)
def visitors(queries: Whole, words: Whole) -> Visitors:
    """Return room for so many visitors."""
    numbers, centre = np.empty(queries, np.int64), np.empty(queries, np.int64)
    return Visitors(
        numbers, centre, np.empty((queries, words), np.uint64), np.empty((queries, 64 * words + AT_ONCE), np.uint16)
    )


@jit(nogil=True)
def nothing_near(words: Whole) -> Near:
    """Return room for what a block of codes of so many words holds."""
    levels = 1
    while 2**levels <= 64 * words:
        levels += 1
    return Near(np.empty(4, np.uint64), np.empty((DISTANCE_PLANES, 4), np.uint64), np.empty(64, np.uint64), levels)


@jit(nogil=True, skip_refcounts=True, inline="always")
def lowest(marks: np.uint64) -> Whole:
    """Return which bit of a word is the first 1."""
    return np.int64(popcount((marks & -marks) - np.uint64(1)))


@jit(nogil=True, skip_refcounts=True, inline="always")
def apart(queries: Words, q: Whole, centres: Words, group: Whole) -> Whole:
    """Return the distance of one of (Q, W) to one of (C, W)."""
    total = np.int64(0)
    for part in range(queries.shape[1]):
        total += np.int64(popcount(queries[q, part] ^ centres[group, part]))
    return total


@jit(nogil=True, skip_refcounts=True, inline="always")
def in_reach(spans: Pairs, row: Whole, centre: Whole, limit: Whole) -> Any:
    """Can a shell of a span (lowest, highest) hold a code within a limit? Of a query so far from the centre."""
    return spans[row, 0] - centre <= limit and centre - spans[row, 1] <= limit


@jit(nogil=True, skip_refcounts=True, inline="always")
def welcome(visitors: Visitors, visitor: Whole, queries: Words, q: Whole, groups: Groups, group: Whole) -> None:
    """Note what is needed of a query that comes to a group."""
    found, parts = 0, queries.shape[1]
    for part in range(parts):
        word = queries[q, part] ^ groups.centres[group, part]
        visitors.differ[visitor, part] = word
        found = list_planes(word, 256 * part, _PLANES_OF, visitors.planes, visitor, found)
    for i in range(AT_ONCE):
        visitors.planes[visitor, found + i] = 256 * parts
    visitors.query[visitor], visitors.centre[visitor] = q, found


@jit(nogil=True, skip_refcounts=True, inline="always")
def may_hold(groups: Groups, block: Whole, visitors: Visitors, visitor: Whole, limit: Whole) -> bool:
    """Is a code of a block within the limit of a visitor? If the block has several shells, True may be wrong."""
    centre = visitors.centre[visitor]
    least, rounds = (centre + groups.shells[block, 0] - limit + 1) >> 1, (centre + AT_ONCE - 1) // AT_ONCE
    if least <= 0:
        return True
    if least <= 64:
        return bool(reaches(groups.planes, block, visitors.planes, visitor, rounds, least))
    return bool(reaches_far(groups.planes, block, visitors.planes, visitor, rounds, least))


@jit(nogil=True, skip_refcounts=True)
def find_near(groups: Groups, block: Whole, visitors: Visitors, visitor: Whole, limit: Whole, near: Near) -> None:
    """Mark the codes of a block within the limit of a visitor."""
    near.distances[:] = 0
    for part in range(visitors.differ.shape[1]):
        for bit in range(64):
            near.bits[bit] = np.uint64(0) - (visitors.differ[visitor, part] >> np.uint64(bit) & np.uint64(1))
        add_differences(groups.planes, block, part, near.bits, near.distances)
    last = groups.planes.shape[1] - 1
    for word in range(4):
        above = np.uint64(0)
        for level in range(near.levels):  # from the lowest: a higher bit that differs decides
            plane = near.distances[level, word]
            above = plane & above if min(limit, 2**near.levels - 1) >> level & 1 else plane | above
        near.marks[word] = ~(above | groups.planes[block, last, word])


@jit(nogil=True, skip_refcounts=True, inline="always")
def codes_in(groups: Groups, block: Whole) -> Whole:
    """Return how many codes a block holds."""
    last, empty = groups.planes.shape[1] - 1, np.int64(0)
    for word in range(4):
        empty += np.int64(popcount(groups.planes[block, last, word]))
    return BLOCK - empty


@jit(nogil=True, skip_refcounts=True, inline="always")
def distance_at(near: Near, word: Whole, bit: Whole) -> Whole:
    """Return the distance of one code."""
    total = np.int64(0)
    for level in range(near.levels):
        total |= np.int64(near.distances[level, word] >> np.uint64(bit) & np.uint64(1)) << level
    return total
