"""Histograms of the distances between many queries and a database."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Packed, Words
from proxyhash.codes.bitsliced import histograms as bitsliced
from proxyhash.codes.bitsliced.llvm_ops import WIDE_WORDS
from proxyhash.codes.bitsliced.sums import BLOCKS_PER_STACK
from proxyhash.codes.sources import SlicedCodes, prepare_queries, slice_codes

_MIN_SLICED_QUERIES = 32  # with fewer queries, converting codes to bit planes costs more than it saves

Counts = NDArray[np.int64]


def histogram_adder(q: Words, db: Words, out: Counts, far: Counts) -> Callable[[slice], None]:
    """Return a function that adds, for a slice of queries, the histogram of distances from `q` (Q, W) to `db` (W, N).

    It adds to `out` (Q, bits + 1), and may leave out distances beyond the current values of `far` (Q,).
    """
    if len(q) < _MIN_SLICED_QUERIES:
        return lambda rows: kernels.histogram_rows(q[rows], db, out[rows])
    no_tags = np.empty((len(q), 0), np.uint64)
    parts = []
    for parity, codes, _ in _split_by_parity(db, out.shape[1] - 1):
        stacks = codes.num_blocks // BLOCKS_PER_STACK
        parts.append((parity, codes, np.empty((stacks, 0, BLOCKS_PER_STACK * WIDE_WORDS), np.uint64)))
    return _stack_counter(q, parts, far, no_tags, out, out)


def tagged_histogram_adder(
    q: Words, db: Words, tags: Words, item_tags: Words, items: Counts, relevant: Counts
) -> Callable[[slice], None]:
    """Return a function that adds, for a slice of queries, histograms of all items and of those that share a tag.

    Tags of queries (Q, T) and of items (T, N) have one bit for each tag. Histograms are (Q, bits + 1).
    """
    if len(q) < _MIN_SLICED_QUERIES:
        return lambda rows: kernels.tagged_histogram_rows(q[rows], db, tags[rows], item_tags, items[rows], relevant[rows])
    parts = []
    for parity, codes, chosen in _split_by_parity(db, items.shape[1] - 1):
        stacks = codes.num_blocks // BLOCKS_PER_STACK
        parts.append((parity, codes, bitsliced.tag_planes(np.take(item_tags, chosen, axis=1), stacks)))
    return _stack_counter(q, parts, np.full(len(q), items.shape[1] - 1), tags, items, relevant)


def _stack_counter(
    q: Words, parts: list[tuple[int, SlicedCodes, Words]], far: Counts, tags: Words, items: Counts, relevant: Counts
) -> Callable[[slice], None]:
    """Return a function that counts the items of both parities for a slice of queries."""
    packed: Packed = q.view(np.uint8)[:, : (items.shape[1] - 1) // 8]
    own_parity = np.bitwise_count(q).sum(1, dtype=np.int64) % 2

    def add(rows: slice) -> None:
        queries = prepare_queries(packed[rows], by_tables=True)
        for parity, codes, item_tags in parts:
            odd = own_parity[rows] ^ parity
            bitsliced.count_stacks(
                codes.planes, codes.valid, queries, odd, far[rows], tags[rows], item_tags, items[rows], relevant[rows]
            )

    return add


def _split_by_parity(db: Words, bits: int) -> list[tuple[int, SlicedCodes, Counts]]:
    """Return the codes of a database (W, N) with an even and with an odd number of ones in stacks, and their indices."""
    odd = np.bitwise_count(db).sum(0, dtype=np.int64) % 2
    parts = []
    for parity in (0, 1):
        chosen = np.flatnonzero(odd == parity)
        rows = np.ascontiguousarray(np.take(db, chosen, axis=1).T)
        stacks = -(-len(chosen) // bitsliced.STACK_ITEMS)
        parts.append((parity, slice_codes(rows, bits, BLOCKS_PER_STACK * stacks), chosen))
    return parts
