"""Bit-sliced kernels for codes of any length, each for one thread without the interpreter's lock.

All take planes (B, P, L) of B blocks, and `valid` (B, L), which marks the items that may be found. Slot s is item s % 64 L
of block s // 64 L.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import WIDE_BLOCK, WIDE_WORDS
from proxyhash.codes.bitsliced.sums import (
    add_differences,
    add_sums,
    any_below,
    any_near,
    select_below,
    start_differences,
    start_sums,
    sum_three_bits,
)
from proxyhash.codes.kernels import Int16Array, Int64Array, popcount, sort_by_distance
from proxyhash.utils.jit import jit

Int = int | np.integer[Any]

_QUERIES_PER_PASS = 256  # whose distances stay in the second-level cache while a table is in the first

_EIGHT, _THIRTY_TWO, _SIXTY_FOUR = (0,) * 8, (0,) * 32, (0,) * 64


class SlicedQueries(NamedTuple):
    """Q queries, prepared for these kernels; few queries have `bits`, and many have `offsets`."""

    bits: Words
    """(Q, P): a word of zeros or of ones for each bit; or (0, P)"""
    offsets: NDArray[np.uint16]
    """(Q, T): where the pattern of each triple of bits is in its table, in words; or (0, T)"""
    triples: tuple[int, ...]
    """as many entries as a table has triples"""
    levels: tuple[int, ...]
    """as many entries as a distance has planes"""


class Scratch(NamedTuple):
    """Memory for one block, and its hits: queries with an item below their limit."""

    table_bits: Words
    """(3 T, L)"""
    table: Words
    """(T, 8, 2, L): sums of three bits for each pattern"""
    sums: Words
    """(R, levels, L): distances as planes"""
    masks: Words
    """(R, L): the items of a hit"""
    queries: Int64Array
    """(R,): the query of a hit"""
    rows: Int64Array
    """(R,): the row of `sums` of a hit"""


class Nearest(NamedTuple):
    """The nearest items of Q queries so far."""

    distances: Int16Array
    """(Q, 2 k)"""
    slots: Int64Array
    """(Q, 2 k)"""
    held: Int64Array
    """(Q,): number of entries in use"""
    limits: Int64Array
    """(Q,): an item must be nearer"""
    limit_bits: Words
    """(Q, levels): a word of zeros or of ones for each bit of the limit"""


class Collected(NamedTuple):
    """Items within the limits of queries, in the order of their slots for each query."""

    queries: NDArray[np.int32]
    """(C,)"""
    distances: Int16Array
    """(C,)"""
    slots: Int64Array
    """(C,)"""
    state: Int64Array
    """(3,): number of entries in use; block and query at which to go on when there was no room"""


@jit(nogil=True)
def _make_scratch(queries: SlicedQueries) -> Scratch:
    triples, levels = len(queries.triples), len(queries.levels)
    rows = min(_QUERIES_PER_PASS, len(queries.bits) + len(queries.offsets)) + 1  # one for a query that is no hit
    return Scratch(
        np.empty((3 * triples, WIDE_WORDS), np.uint64),
        np.empty((triples, 8, 2, WIDE_WORDS), np.uint64),
        np.empty((rows, levels, WIDE_WORDS), np.uint64),
        np.empty((rows, WIDE_WORDS), np.uint64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
    )


@jit(nogil=True, skip_refcounts=True)
def set_limit(limit_bits: Words, q: int, limit: int) -> None:
    """Write the bits of the limit of query q."""
    for level in range(limit_bits.shape[1]):
        limit_bits[q, level] = np.uint64(0) - np.uint64(limit >> level & 1)


@jit(nogil=True, skip_refcounts=True)
def build_table(planes: Words, block: int, first: int, bits: Words, table: Words) -> None:
    """Write the sums of all triples of planes from `first` on to `table` (T, 8, 2, L); `bits` (3 T, L) is scratch space."""
    held = min(len(bits), planes.shape[1] - first)
    for plane in range(held):
        for word in range(WIDE_WORDS):
            bits[plane, word] = planes[block, first + plane, word]
    for plane in range(held, len(bits)):
        for word in range(WIDE_WORDS):
            bits[plane, word] = 0
    for triple in range(len(table)):
        sum_three_bits(bits, triple, table)


@jit(nogil=True, skip_refcounts=True, inline="always")
def _sum_directly(planes: Words, block: int, queries: SlicedQueries, q: int, sums: Words, row: int) -> None:
    """Write the distances of a block to query q to a row of `sums` (R, levels, L)."""
    levels, bits = queries.levels, planes.shape[1]
    first = 64 if bits >= 64 else 32 if bits >= 32 else 8
    if bits >= 64:
        start_differences(planes, block, 0, queries.bits, q, sums, row, _SIXTY_FOUR, levels)
    elif bits >= 32:
        start_differences(planes, block, 0, queries.bits, q, sums, row, _THIRTY_TWO, levels)
    else:
        start_differences(planes, block, 0, queries.bits, q, sums, row, _EIGHT, levels)
    while bits - first >= 64:
        add_differences(planes, block, first, queries.bits, q, sums, row, _SIXTY_FOUR, levels)
        first += 64
    while bits - first >= 8:
        add_differences(planes, block, first, queries.bits, q, sums, row, _EIGHT, levels)
        first += 8


@jit(nogil=True, skip_refcounts=True, inline="always")
def _scan_directly(
    planes: Words,
    valid: Words,
    block: int,
    queries: SlicedQueries,
    begin: int,
    end: int,
    limit_bits: Words,
    scratch: Scratch,
) -> int:
    """Compare a block with queries `begin` to `end`; each reads all planes. Return the number of hits."""
    hits = 0
    for q in range(begin, end):
        if planes.shape[1] == 32 and not any_near(planes, block, queries.bits, q, limit_bits, valid, _THIRTY_TWO):
            continue
        if planes.shape[1] == 64 and not any_near(planes, block, queries.bits, q, limit_bits, valid, _SIXTY_FOUR):
            continue
        _sum_directly(planes, block, queries, q, scratch.sums, hits)
        if select_below(scratch.sums, hits, limit_bits, q, valid, block, scratch.masks, hits, queries.levels):
            scratch.queries[hits], scratch.rows[hits] = q, hits
            hits += 1
    return hits


@jit(nogil=True, skip_refcounts=True)
def _scan_by_table(
    planes: Words,
    valid: Words,
    block: int,
    queries: SlicedQueries,
    begin: int,
    end: int,
    limit_bits: Words,
    scratch: Scratch,
) -> int:
    """Compare a block with queries `begin` to `end`, by one table that has all bits. Return the number of hits."""
    hits, table, offsets, triples = 0, scratch.table, queries.offsets, queries.triples
    if begin == 0:
        build_table(planes, block, 0, scratch.table_bits, table)
    for q in range(begin, end):
        if any_below(table, offsets, q, limit_bits, valid, block, triples):
            start_sums(table, offsets, q, 0, scratch.sums, hits, triples, queries.levels)
            select_below(scratch.sums, hits, limit_bits, q, valid, block, scratch.masks, hits, queries.levels)
            scratch.queries[hits], scratch.rows[hits] = q, hits
            hits += 1
    return hits


@jit(nogil=True, skip_refcounts=True)
def _scan_by_tables(
    planes: Words,
    valid: Words,
    block: int,
    queries: SlicedQueries,
    begin: int,
    end: int,
    limit_bits: Words,
    scratch: Scratch,
) -> int:
    """Compare a block with queries `begin` to `end`, by several tables. Return the number of hits."""
    hits, triples, levels = 0, queries.triples, queries.levels
    for part in range(queries.offsets.shape[1] // len(triples)):
        build_table(planes, block, 3 * len(triples) * part, scratch.table_bits, scratch.table)
        if part == 0:
            for q in range(begin, end):
                start_sums(scratch.table, queries.offsets, q, 0, scratch.sums, q - begin, triples, levels)
        else:
            for q in range(begin, end):
                first = len(triples) * part
                add_sums(scratch.table, queries.offsets, q, first, scratch.sums, q - begin, triples, levels)
    for q in range(begin, end):
        if select_below(scratch.sums, q - begin, limit_bits, q, valid, block, scratch.masks, hits, levels):
            scratch.queries[hits], scratch.rows[hits] = q, q - begin
            hits += 1
    return hits


@jit(nogil=True, skip_refcounts=True, inline="always")
def _scan(
    planes: Words,
    valid: Words,
    block: int,
    queries: SlicedQueries,
    begin: int,
    end: int,
    limit_bits: Words,
    scratch: Scratch,
) -> int:
    if len(queries.bits):
        return _scan_directly(planes, valid, block, queries, begin, end, limit_bits, scratch)
    if queries.offsets.shape[1] == len(queries.triples):
        return _scan_by_table(planes, valid, block, queries, begin, end, limit_bits, scratch)
    return _scan_by_tables(planes, valid, block, queries, begin, end, limit_bits, scratch)


@jit(nogil=True, skip_refcounts=True, inline="always")
def lowest_bit(mask: np.uint64) -> Int:
    """Return the index of the lowest set bit of a word."""
    return np.int64(popcount((mask & -mask) - np.uint64(1)))


@jit(nogil=True, skip_refcounts=True, inline="always")
def _distance_at(sums: Words, row: Int, word: int, bit: Int) -> Int:
    """Return the distance of one item of a block."""
    total: Int = np.int64(0)
    for level in range(sums.shape[1]):
        total |= np.int64(sums[row, level, word] >> np.uint64(bit) & np.uint64(1)) << level
    return total


@jit(nogil=True)
def nearest_blocks(planes: Words, valid: Words, first: int, queries: SlicedQueries, nearest: Nearest) -> None:
    """Update the nearest items of all queries by blocks whose slots begin at `first`; slots ascend from call to call."""
    scratch, total = _make_scratch(queries), len(queries.bits) + len(queries.offsets)
    block = _skip_far_blocks(planes, valid, 0, queries, nearest.limit_bits)
    while block < len(planes):
        for begin in range(0, total, _QUERIES_PER_PASS):
            end = min(begin + _QUERIES_PER_PASS, total)
            hits = _scan(planes, valid, block, queries, begin, end, nearest.limit_bits, scratch)
            for hit in range(hits):
                _push_hit(scratch, hit, first + WIDE_BLOCK * block, nearest, planes.shape[1] + 1)
        block = _skip_far_blocks(planes, valid, block + 1, queries, nearest.limit_bits)


@jit(nogil=True, skip_refcounts=True)
def _skip_far_blocks(planes: Words, valid: Words, block: Int, queries: SlicedQueries, limit_bits: Words) -> Int:
    """Return the first block from `block` on that may have a hit.

    For one query and the shortest codes, the loop is so short that memory is read at full speed; otherwise it is `block`.
    """
    if len(queries.bits) == 1 and planes.shape[1] == 32:
        while block < len(planes) and not any_near(planes, block, queries.bits, 0, limit_bits, valid, _THIRTY_TWO):
            block += 1
    elif len(queries.bits) == 1 and planes.shape[1] == 64:
        while block < len(planes) and not any_near(planes, block, queries.bits, 0, limit_bits, valid, _SIXTY_FOUR):
            block += 1
    return block


@jit(nogil=True)
def _push_hit(scratch: Scratch, hit: int, first: int, nearest: Nearest, bins: int) -> None:
    """Append the items of a hit to the buffer of its query.

    When the buffer is full, the k best are kept, and from then on an item must be nearer than the k-th; ties go to the lower
    slot.
    """
    q, row, size = scratch.queries[hit], scratch.rows[hit], nearest.distances.shape[1]
    for word in range(WIDE_WORDS):
        left = scratch.masks[hit, word]
        while left:
            bit = lowest_bit(left)
            left &= left - np.uint64(1)
            distance = _distance_at(scratch.sums, row, word, bit)
            if distance < nearest.limits[q]:
                held = nearest.held[q]
                nearest.distances[q, held], nearest.slots[q, held] = distance, first + 64 * word + bit
                nearest.held[q] = held + 1
                if held + 1 == size:
                    sort_by_distance(nearest.distances[q], nearest.slots[q], size, bins)
                    nearest.held[q], nearest.limits[q] = size // 2, nearest.distances[q, size // 2 - 1]
                    set_limit(nearest.limit_bits, q, nearest.limits[q])


@jit(nogil=True)
def collect_blocks(
    planes: Words, valid: Words, first: int, queries: SlicedQueries, limit_bits: Words, found: Collected
) -> bool:
    """Append all items below the limits of the queries, of blocks whose slots begin at `first`.

    Return False if there is no room. The next call goes on where `found.state` says.
    """
    scratch, total, state = _make_scratch(queries), len(queries.bits) + len(queries.offsets), found.state
    for block in range(state[1], len(planes)):
        for begin in range(0, total, _QUERIES_PER_PASS):
            end = min(begin + _QUERIES_PER_PASS, total)
            hits = _scan(planes, valid, block, queries, begin, end, limit_bits, scratch)
            for hit in range(hits):
                if block == state[1] and scratch.queries[hit] < state[2]:
                    continue  # it was appended by the call before
                if state[0] + _count_hit(scratch, hit) > len(found.slots):
                    state[1], state[2] = block, scratch.queries[hit]
                    return False
                _append_hit(scratch, hit, first + WIDE_BLOCK * block, found)
    state[1], state[2] = 0, 0
    return True


@jit(nogil=True, skip_refcounts=True)
def _count_hit(scratch: Scratch, hit: int) -> Int:
    total = np.int64(0)
    for word in range(WIDE_WORDS):
        total += np.int64(popcount(scratch.masks[hit, word]))
    return total


@jit(nogil=True, skip_refcounts=True)
def _append_hit(scratch: Scratch, hit: int, first: int, found: Collected) -> None:
    """Append the items of a hit; there is room for them."""
    count = found.state[0]
    for word in range(WIDE_WORDS):
        left = scratch.masks[hit, word]
        while left:
            bit = lowest_bit(left)
            left &= left - np.uint64(1)
            found.queries[count] = scratch.queries[hit]
            found.distances[count] = _distance_at(scratch.sums, scratch.rows[hit], word, bit)
            found.slots[count] = first + 64 * word + bit
            count += 1
    found.state[0] = count
