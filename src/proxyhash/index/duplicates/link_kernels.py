"""Kernels that unite near codes: union-find over the buckets of a hash table, without storing pairs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.utils.jit import jit

TILE = 256  # codes that are compared with as many others before components are looked up again
_MIN_ROWS_TO_SKIP = 16  # looking up components costs more than comparing fewer codes

Parents = NDArray[np.int32]
"""(n,): the parent of each code in its component; a root is its own parent."""


class Pairing(NamedTuple):
    """n codes of V words, and what makes two of them near: both distances within their radius.

    The second representation may be codes or 8-bit values; the one that is not used has no columns.
    """

    words: Words
    """(V, n)"""
    radius: int
    second_words: Words
    """(n, V2)"""
    second_radius: int
    values: NDArray[np.int8]
    """(n, D)"""
    squared_radius: int


class Units(NamedTuple):
    """U units of work: the codes `first` to `last` of a bucket are compared with `others` to `end` of the same bucket.

    Where both ranges overlap, each pair is compared once. Numbers are entries in the order of the table.
    """

    first: Int64s
    last: Int64s
    others: Int64s
    end: Int64s


@jit(nogil=True, skip_refcounts=True)
def find_root(parents: Parents, code: Int) -> Int:
    """Return the root of a code's component, halving the path to it."""
    while parents[code] != code:
        parents[code] = parents[parents[code]]
        code = parents[code]
    return code


@jit(nogil=True, skip_refcounts=True)
def unite(parents: Parents, one: Int, other: Int) -> None:
    """Unite the components of two codes; the smaller root stays."""
    a, b = find_root(parents, one), find_root(parents, other)
    if a < b:
        parents[b] = a
    else:
        parents[a] = b


@jit(nogil=True)
def unite_pairs(parents: Parents, ones: Int64s, others: Int64s) -> None:
    """Unite the components of pairs of codes, (m,) each."""
    for pair in range(len(ones)):
        unite(parents, ones[pair], others[pair])


@jit(nogil=True)
def merge_parents(parents: Parents, other: Parents) -> None:
    """Unite what is united in `other`, and flatten the result."""
    for code in range(len(parents)):
        if other[code] != code:
            unite(parents, code, other[code])
    flatten(parents)


@jit(nogil=True)
def flatten(parents: Parents) -> None:
    """Let all codes point to their roots."""
    for code in range(len(parents)):
        parents[code] = parents[parents[code]]  # a parent is smaller than the code, and so points to its root by now


@jit(nogil=True)
def link_units(pairing: Pairing, order: Int64s, units: Units, begin: Int, until: Int, parents: Parents) -> None:
    """Unite all near pairs of the units `begin` to `until`; `pairing.words` are in the order of the table.

    `order` (n,) gives the number of each code in `parents` and in the second representation. Tiles whose codes are in one
    component already are skipped.
    """
    distances = np.empty(TILE, np.uint64)
    for unit in range(begin, until):
        first, last, end = units.first[unit], units.last[unit], units.end[unit]
        for start in range(units.others[unit], end, TILE):
            stop = min(start + TILE, end)
            if last - first < _MIN_ROWS_TO_SKIP or not _is_one_component(parents, order, first, last, start, stop):
                for row in range(first, last):
                    _link_row(pairing, order, row, max(start, row + 1), stop, distances, parents)


@jit(nogil=True, skip_refcounts=True)
def _is_one_component(parents: Parents, order: Int64s, first: Int, last: Int, start: Int, stop: Int) -> bool:
    root = find_root(parents, order[first])
    differs = False
    for entry in range(first + 1, last):
        differs |= find_root(parents, order[entry]) != root
    for entry in range(start, stop):
        if differs:
            break
        differs = find_root(parents, order[entry]) != root
    return not differs


@jit(nogil=True, skip_refcounts=True)
def _link_row(pairing: Pairing, order: Int64s, row: Int, start: Int, stop: Int, distances: Words, parents: Parents) -> None:
    """Unite the code at `row` with the near ones from `start` to `stop`."""
    words, radius = pairing.words, np.uint64(pairing.radius)
    query, others = words[0, row], words[0]
    for entry in range(start, stop):
        distances[entry - start] = popcount(query ^ others[entry])
    for part in range(1, len(words)):
        query, others = words[part, row], words[part]
        for entry in range(start, stop):
            distances[entry - start] += popcount(query ^ others[entry])
    near = 0
    for entry in range(stop - start):
        near += distances[entry] <= radius
    if near:
        code = order[row]
        for entry in range(start, stop):
            if distances[entry - start] <= radius:
                other = order[entry]
                if parents[code] != parents[other] and is_near_too(pairing, code, other):
                    unite(parents, code, other)


@jit(nogil=True, skip_refcounts=True)
def is_near_too(pairing: Pairing, one: Int, other: Int) -> bool:
    """Return whether the second representations of two codes are near; without one, all are."""
    bits = np.uint64(0)
    for part in range(pairing.second_words.shape[1]):
        bits += popcount(pairing.second_words[one, part] ^ pairing.second_words[other, part])
    squares = np.int64(0)
    for part in range(pairing.values.shape[1]):
        difference = np.int64(pairing.values[one, part]) - np.int64(pairing.values[other, part])
        squares += difference * difference
    return bool(bits <= np.uint64(pairing.second_radius)) and bool(squares <= pairing.squared_radius)
