"""Bit-sliced histograms of distances.

Items are counted in stacks of 16 blocks. All items have the same parity of ones, so that all distances of a query are even,
or all are odd, and only half of the bins are counted. An item is in a bin if its distance planes equal the bits of the bin;
the marks of 16 blocks are added before bits are counted.
"""

from typing import Any

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.kernels import SlicedQueries, build_table, lowest_bit
from proxyhash.codes.bitsliced.llvm_ops import WIDE_BLOCK, WIDE_WORDS
from proxyhash.codes.bitsliced.slicing import slice_block
from proxyhash.codes.bitsliced.sums import (
    BLOCKS_PER_STACK,
    add_sums,
    count_both,
    mark_quotient,
    mark_remainders,
    start_sums,
)
from proxyhash.codes.kernels import Int64Array
from proxyhash.utils.jit import jit

STACK_ITEMS = BLOCKS_PER_STACK * WIDE_BLOCK  # items of a stack
_QUERIES_PER_PASS = 32  # whose distances to a stack stay in the second-level cache


@jit(nogil=True)
def tag_planes(item_tags: Words, stacks: int) -> Any:
    """Return the tags (T, N) of all items as planes (stacks, 64 T, 16 L), 16 blocks side by side, padded with zeros."""
    scratch = np.empty((64, WIDE_WORDS), np.uint64)
    out = np.empty((stacks, 64 * len(item_tags), BLOCKS_PER_STACK, WIDE_WORDS), np.uint64)
    for stack in range(stacks):
        for word in range(len(item_tags)):
            for block in range(BLOCKS_PER_STACK):
                slice_block(item_tags[word], stack * STACK_ITEMS + block * WIDE_BLOCK, scratch)
                out[stack, 64 * word : 64 * word + 64, block] = scratch
    return out.reshape((stacks, 64 * len(item_tags), BLOCKS_PER_STACK * WIDE_WORDS))


@jit(nogil=True)
def count_stacks(
    planes: Words,
    valid: Words,
    queries: SlicedQueries,
    odd: Int64Array,
    far: Int64Array,
    tags: Words,
    item_tags: Words,
    items_out: Int64Array,
    relevant_out: Int64Array,
) -> None:
    """Add the number of items at each distance to `items_out` (Q, bins), and of those that share a tag to `relevant_out`.

    Planes are (16 S, P, L). `odd` (Q,) is 1 if the distances of a query are odd, else 0. Distances beyond `far` (Q,) may be
    left out. `tags` (Q, T) hold one bit for each tag, `item_tags` are from `tag_planes`; without tags, both are empty.
    """
    rows, levels = BLOCKS_PER_STACK * _QUERIES_PER_PASS, queries.levels
    sums = np.empty((rows, len(levels), WIDE_WORDS), np.uint64)
    low = np.empty((8, BLOCKS_PER_STACK, WIDE_WORDS), np.uint64)
    high, shared = np.empty((BLOCKS_PER_STACK, WIDE_WORDS), np.uint64), np.empty(BLOCKS_PER_STACK * WIDE_WORDS, np.uint64)
    for stack in range(len(planes) // BLOCKS_PER_STACK):
        for begin in range(0, len(queries.offsets), _QUERIES_PER_PASS):
            end = min(begin + _QUERIES_PER_PASS, len(queries.offsets))
            _sum_stack(planes, stack * BLOCKS_PER_STACK, queries, begin, end, sums)
            for q in range(begin, end):
                first = BLOCKS_PER_STACK * (q - begin)
                for block in range(BLOCKS_PER_STACK):
                    mark_remainders(sums, first + block, valid, stack * BLOCKS_PER_STACK + block, low, block)
                _count_stack(sums, first, low, high, far[q], items_out, q, odd[q], levels)
                if tags.shape[1]:
                    _keep_shared(tags, q, item_tags[stack], shared, low.reshape((8, BLOCKS_PER_STACK * WIDE_WORDS)))
                    _count_stack(sums, first, low, high, far[q], relevant_out, q, odd[q], levels)


@jit(nogil=True)
def _sum_stack(planes: Words, first: int, queries: SlicedQueries, begin: int, end: int, sums: Words) -> None:
    """Write the distances of 16 blocks to queries `begin` to `end` to `sums`, 16 rows for each query."""
    triples, levels = queries.triples, queries.levels
    bits = np.empty((3 * len(triples), WIDE_WORDS), np.uint64)
    table = np.empty((len(triples), 8, 2, WIDE_WORDS), np.uint64)
    for block in range(BLOCKS_PER_STACK):
        for part in range(queries.offsets.shape[1] // len(triples)):
            build_table(planes, first + block, 3 * len(triples) * part, bits, table)
            for q in range(begin, end):
                row = BLOCKS_PER_STACK * (q - begin) + block
                if part == 0:
                    start_sums(table, queries.offsets, q, 0, sums, row, triples, levels)
                else:
                    add_sums(table, queries.offsets, q, len(triples) * part, sums, row, triples, levels)


@jit(nogil=True, skip_refcounts=True)
def _keep_shared(tags: Words, q: int, planes: Words, shared: Words, low: Words) -> None:
    """Clear the marks in `low` (8, 16 L) of items that share no tag with query q; `planes` are (64 T, 16 L)."""
    for i in range(len(shared)):
        shared[i] = 0
    for word in range(tags.shape[1]):
        left = tags[q, word]
        while left:
            tag = 64 * word + lowest_bit(left)
            for i in range(len(shared)):
                shared[i] |= planes[tag, i]
            left &= left - np.uint64(1)
    for value in range(len(low)):
        for i in range(len(shared)):
            low[value, i] &= shared[i]


@jit(nogil=True, skip_refcounts=True)
def _count_stack(
    sums: Words,
    first: int,
    low: Words,
    high: Words,
    far: int,
    out: Int64Array,
    q: int,
    odd: int,
    levels: tuple[int, ...],
) -> None:
    """Add the numbers of items to every other bin of row q; quotients beyond `far` or without items are skipped."""
    for quotient in range(far // 16 + 1):
        if mark_quotient(sums, first, quotient, high, levels):
            for remainder in range(8):
                bin_ = 16 * quotient + 2 * remainder + odd
                if bin_ < out.shape[1]:
                    out[q, bin_] += count_both(high, low, remainder)
