"""Bit-sliced kernels for one-word codes and many queries.

Nothing is precomputed: each block of the database is turned into bit planes when it is reached, which costs as much as forty
queries. Results are those of `codes.kernels`, which are faster for fewer queries and take codes of any length.
"""

from typing import Any

import numpy as np

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.bit_planes import (
    BLOCKS_PER_STACK,
    TRIPLES,
    any_below,
    count_both,
    mark_values,
    pattern_offsets,
    slice_block,
    sum_triples,
    write_halves,
)
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import Int16Array, Int64Array
from proxyhash.utils.jit import jit

STACK_ITEMS = BLOCKS_PER_STACK * BLOCK  # items of a stack
_MIN_QUERIES = 48  # with fewer queries, the conversion to bit planes costs more than it saves
_QUERIES_PER_BATCH = 32  # queries compared with a block while its sums are in the first-level cache


def is_faster(queries: Words, database: Words) -> bool:
    """Return whether these kernels are faster: codes have one word, and there are enough queries."""
    return database.shape[0] == 1 and len(queries) > _MIN_QUERIES


def split_by_parity(database: Words) -> tuple[Words, Words]:
    """Return the codes of a database (1, N) with an even number of ones, and those with an odd number."""
    row, even = _even_first(database[0])
    return row[None, :even], row[None, even:]


@jit(nogil=True)
def _even_first(row: Words) -> Any:
    """Return the codes of a row (N,) with an even number of ones first, and how many those are."""
    even = 0
    for item in range(len(row)):
        even += kernels.popcount(row[item]) & np.uint64(1) == np.uint64(0)
    out, ends = np.empty_like(row), np.array([0, even])
    for item in range(len(row)):
        parity = kernels.popcount(row[item]) & np.uint64(1)
        out[ends[parity]] = row[item]
        ends[parity] += 1
    return out, even


@jit(nogil=True)
def nearest_rows(queries: Words, database: Words, k: int, near: Int16Array, position: Int64Array) -> None:
    """Write the result of `codes.kernels.nearest_rows`; blocks without a distance below the limit are skipped."""
    items, bins = database.shape[1], 65
    chunk, held, limit = np.empty(BLOCK, np.uint64), np.zeros(len(queries), np.int64), np.full(len(queries), bins, np.int64)
    triples, scratch = np.empty((TRIPLES, 8, 2, 4), np.uint64), np.empty((66, 4), np.uint64)
    limit_bits, offsets = np.empty((len(queries), 7, 4), np.uint64), pattern_offsets(queries)
    for q in range(len(queries)):
        _broadcast_bits(bins, limit_bits[q])
    for first in range(0, items, BLOCK):
        last = min(first + BLOCK, items)
        sum_triples(database[0], first, scratch, triples)
        for q in range(len(queries)):
            if any_below(triples, offsets[q], limit_bits[q]):
                kernels.chunk_distances(queries[q], database, first, last, chunk)
                kernels.push_nearer(chunk, first, last, k, bins, near[q], position[q], held, limit, q)
                _broadcast_bits(limit[q], limit_bits[q])
    for q in range(len(queries)):
        kernels.sort_by_distance(near[q], position[q], held[q], bins)


@jit(nogil=True)
def _broadcast_bits(number: int, out: Words) -> None:
    """Write the bits of a number to `out` (7, 4), each as a constant plane."""
    for bit in range(7):
        out[bit] = np.uint64(0) - np.uint64(number >> bit & 1)


@jit(nogil=True)
def histogram_rows(queries: Words, database: Words, far: Int64Array, out: Int64Array) -> None:
    """Add to `out` (Q, 65) the number of items at each distance, if all items have the same parity of ones.

    All distances of a query are then even, or all are odd, so only half of the bins are counted. Distances beyond `far`
    (Q,) may be left out.
    """
    no_tags, no_planes = np.empty((len(queries), 0), np.uint64), np.empty((0, 0, BLOCKS_PER_STACK * 4), np.uint64)
    whole = database.shape[1] // STACK_ITEMS * STACK_ITEMS
    _count_stacks(queries, database[0][:whole], far, no_tags, no_planes, out, out)
    kernels.histogram_rows(queries, database[:, whole:], out)


@jit(nogil=True)
def tagged_histogram_rows(
    queries: Words,
    database: Words,
    tags: Words,
    item_tags: Words,
    planes: Words,
    items_out: Int64Array,
    relevant_out: Int64Array,
) -> None:
    """Add the counts of `codes.kernels.tagged_histogram_rows`, for items of one parity; `planes` are from `tag_planes`."""
    whole = database.shape[1] // STACK_ITEMS * STACK_ITEMS
    _count_stacks(queries, database[0][:whole], np.full(len(queries), 64), tags, planes, items_out, relevant_out)
    kernels.tagged_histogram_rows(queries, database[:, whole:], tags, item_tags[:, whole:], items_out, relevant_out)


@jit(nogil=True)
def tag_planes(item_tags: Words) -> Any:
    """Return the tags (T, N) of whole stacks of items as planes (stacks, 64 T, 64), 16 blocks side by side."""
    scratch = np.empty((64, 4), np.uint64)
    out = np.empty((item_tags.shape[1] // STACK_ITEMS, 64 * len(item_tags), BLOCKS_PER_STACK, 4), np.uint64)
    for stack in range(len(out)):
        for word in range(len(item_tags)):
            for block in range(BLOCKS_PER_STACK):
                slice_block(item_tags[word], stack * STACK_ITEMS + block * BLOCK, scratch)
                out[stack, 64 * word : 64 * word + 64, block] = scratch
    return out.reshape((len(out), 64 * len(item_tags), BLOCKS_PER_STACK * 4))


@jit(nogil=True)
def _count_stacks(
    queries: Words, row: Words, far: Int64Array, tags: Words, planes: Words, items_out: Int64Array, relevant_out: Int64Array
) -> None:
    """Count the items of whole stacks by distance and, if there are `tags`, those that share a tag with the query.

    An item is in a bin if its distance planes equal the bits of the bin; 16 blocks are added before bits are counted.
    """
    triples, scratch = np.empty((BLOCKS_PER_STACK, TRIPLES, 8, 2, 4), np.uint64), np.empty((66, 4), np.uint64)
    halves, offsets = np.empty((_QUERIES_PER_BATCH, 6, BLOCKS_PER_STACK, 4), np.uint64), pattern_offsets(queries)
    low, high = np.empty((8, BLOCKS_PER_STACK, 4), np.uint64), np.empty((5, BLOCKS_PER_STACK, 4), np.uint64)
    shared = np.empty(BLOCKS_PER_STACK * 4, np.uint64)
    for start in range(0, len(row), STACK_ITEMS):
        for block in range(BLOCKS_PER_STACK):
            sum_triples(row, start + block * BLOCK, scratch, triples[block])
        for q in range(0, len(queries), _QUERIES_PER_BATCH):
            last = min(q + _QUERIES_PER_BATCH, len(queries))
            for block in range(BLOCKS_PER_STACK):
                for one in range(q, last):
                    write_halves(triples[block], offsets[one], halves[one - q, 0, block])
            for one in range(q, last):
                odd = np.int64(kernels.popcount(queries[one, 0] ^ row[0]) & np.uint64(1))
                for block in range(BLOCKS_PER_STACK):
                    mark_values(halves[one - q, 0, block], low[0, block], high[0, block])
                _count_stack(low, high, far[one], items_out[one, odd:])
                if tags.shape[1]:
                    _keep_shared(tags[one], planes[start // STACK_ITEMS], shared, low.reshape((8, BLOCKS_PER_STACK * 4)))
                    _count_stack(low, high, far[one], relevant_out[one, odd:])


@jit(nogil=True)
def _keep_shared(tags: Words, planes: Words, shared: Words, low: Words) -> None:
    """Clear the marks in `low` (8, 64) of items that share no tag with a query; `planes` are (64 T, 64)."""
    shared[:] = 0
    for word in range(len(tags)):
        left = tags[word]
        while left:
            tag = 64 * word + np.int64(kernels.popcount((left & -left) - np.uint64(1)))
            for i in range(len(shared)):
                shared[i] |= planes[tag, i]
            left &= left - np.uint64(1)
    for value in range(len(low)):
        for i in range(len(shared)):
            low[value, i] &= shared[i]


@jit(nogil=True)
def _count_stack(low: Words, high: Words, far: int, out: Int64Array) -> None:
    """Add the numbers of items to every other bin of `out`; quotients beyond `far` or without items are skipped."""
    for quotient in range(far // 16 + 1):
        occurs = np.uint64(0)
        for block in range(BLOCKS_PER_STACK):
            for word in range(4):
                occurs |= high[quotient, block, word]
        if occurs:
            for remainder in range(8 if quotient < 4 else 1):
                out[16 * quotient + 2 * remainder] += count_both(high[quotient], low[remainder])
