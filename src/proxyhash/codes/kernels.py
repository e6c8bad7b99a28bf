"""Hamming distance kernels, each for one thread without the interpreter's lock.

All take queries (Q, W) and a database (W, N) of 64-bit words. The outer loop is over blocks of the database, so that a block
stays in the cache for all queries. Codes of one word are compared with four queries at a time: one load serves four queries,
and their four histograms or minima are independent. Distances are small integers, so sorting is by counting.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.utils.jit import jit

BLOCK = 8192  # codes per block: 64 KB at 64 bits, well inside a second-level cache
CHUNK = 256  # codes whose distances are computed together

Int16Array = NDArray[np.int16]
Int64Array = NDArray[np.int64]
Int32Array = NDArray[np.int32]


@intrinsic
def _popcount(typing_context: Any, word: Any) -> Any:  # noqa: ARG001
    """Count the ones of a 64-bit word with the instruction of the processor."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = _popcount  # numba passes the typing context itself, so callers have one argument less


@jit(nogil=True, inline="always")
def chunk_distances(query: Words, database: Words, first: int, last: int, out: Words) -> None:
    """Write the distances of items first to last into `out`, two words of the codes at a time."""
    parts = database.shape[0]
    if parts % 2:
        word, row = query[0], database[0]
        for item in range(first, last):
            out[item - first] = popcount(word ^ row[item])
    else:
        for item in range(last - first):
            out[item] = 0
    for part in range(parts % 2, parts, 2):
        word, next_word = query[part], query[part + 1]
        row, next_row = database[part], database[part + 1]
        for item in range(first, last):
            out[item - first] += popcount(word ^ row[item]) + popcount(next_word ^ next_row[item])


@jit(nogil=True)
def distance_rows(queries: Words, database: Words, out: Int16Array) -> None:
    """Fill `out` (Q, N) with all distances."""
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                chunk_distances(queries[q], database, first, last, chunk)
                for item in range(first, last):
                    out[q, item] = chunk[item - first]


@jit(nogil=True)
def histogram_rows(queries: Words, database: Words, out: Int64Array) -> None:
    """Add to `out` (Q, bins) the number of items at each distance."""
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    table = np.empty((4, out.shape[1]), np.int32)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(0, len(queries), 4):
            table[:] = 0
            if database.shape[0] == 1:
                _count_four(queries, q, database[0, start:stop], table[0], table[1], table[2], table[3])
            else:
                for j in range(min(4, len(queries) - q)):
                    for first in range(start, stop, CHUNK):
                        last = min(first + CHUNK, stop)
                        chunk_distances(queries[q + j], database, first, last, chunk)
                        for item in range(last - first):
                            table[j, chunk[item]] += 1
            for j in range(min(4, len(queries) - q)):
                for bin_ in range(out.shape[1]):
                    out[q + j, bin_] += table[j, bin_]


@jit(nogil=True, inline="always")
def _count_four(
    queries: Words, q: int, row: Words, table_a: Int32Array, table_b: Int32Array, table_c: Int32Array, table_d: Int32Array
) -> None:
    """Count the distances of a row of one-word codes to queries q to q + 3, a table for each."""
    end = len(queries) - 1
    a, b, c, d = queries[q, 0], queries[min(q + 1, end), 0], queries[min(q + 2, end), 0], queries[min(q + 3, end), 0]
    for item in range(len(row)):
        word = row[item]
        table_a[popcount(a ^ word)] += 1
        table_b[popcount(b ^ word)] += 1
        table_c[popcount(c ^ word)] += 1
        table_d[popcount(d ^ word)] += 1


@jit(nogil=True)
def histogram_parts(queries: Words, database: Words, begins: Int64Array, ends: Int64Array, out: Int64Array) -> None:
    """Add to `out` (Q, bins) the number of items at each distance, among items begins[q] to ends[q] for query q.

    Four tables are used in turn, because consecutive increments of one counter would wait for each other.
    """
    chunk, turns = np.empty(CHUNK, np.uint64), np.zeros((4, out.shape[1]), np.int32)
    for q in range(len(queries)):
        turns[:] = 0
        for first in range(begins[q], ends[q], CHUNK):
            last = min(first + CHUNK, ends[q])
            chunk_distances(queries[q], database, first, last, chunk)
            for item in range(last - first):
                turns[item & 3, chunk[item]] += 1
        for bin_ in range(out.shape[1]):
            out[q, bin_] += turns[0, bin_] + turns[1, bin_] + turns[2, bin_] + turns[3, bin_]


@jit(nogil=True)
def sort_by_distance(near: Int16Array, position: Int64Array, count: int, bins: int) -> None:
    """Sort the first `count` entries by distance, in place, by a stable counting sort."""
    begins = np.zeros(bins + 1, np.int64)
    for entry in range(count):
        begins[near[entry] + 1] += 1
    for bin_ in range(bins):
        begins[bin_ + 1] += begins[bin_]
    old_near, old_position = near[:count].copy(), position[:count].copy()
    for entry in range(count):
        place = begins[old_near[entry]]
        near[place], position[place] = old_near[entry], old_position[entry]
        begins[old_near[entry]] += 1


@jit(nogil=True)
def sort_rows(near: Int16Array, position: Int64Array, counts: Int64Array, bins: int) -> None:
    """Sort the first `counts` (Q,) entries of each row by distance, in place."""
    for q in range(len(near)):
        sort_by_distance(near[q], position[q], counts[q], bins)


@jit(nogil=True)
def group_by_query(
    queries: NDArray[np.int32], near: Int16Array, position: Int64Array, count: int, bins: int
) -> tuple[Int64Array, Int16Array, Int64Array]:
    """Return the number of entries of each of `count` queries, and distances and positions sorted by query and distance.

    The sort is stable and by counting.
    """
    begins = np.zeros(count * bins + 1, np.int64)
    for entry in range(len(queries)):
        begins[queries[entry] * bins + near[entry] + 1] += 1
    for cell in range(count * bins):
        begins[cell + 1] += begins[cell]
    starts = begins[::bins].copy()
    sorted_near, sorted_position = np.empty_like(near), np.empty_like(position)
    for entry in range(len(queries)):
        cell = queries[entry] * bins + near[entry]
        sorted_near[begins[cell]], sorted_position[begins[cell]] = near[entry], position[entry]
        begins[cell] += 1
    return starts[1:] - starts[:-1], sorted_near, sorted_position


@jit(nogil=True)
def tagged_histogram_rows(
    queries: Words, database: Words, tags: Words, item_tags: Words, items_out: Int64Array, relevant_out: Int64Array
) -> None:
    """Add to (Q, bins) the number of items at each distance, and the number of those that share a tag with the query.

    `tags` (Q, T) and `item_tags` (T, N) hold one bit per tag. A pair is counted once, in bin 2 * distance + (a tag is
    shared). Four tables are used in turn, because consecutive increments of one counter would wait for each other.
    """
    items = database.shape[1]
    chunk, shared = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    turns = np.zeros((4, 2 * items_out.shape[1]), np.int32)
    table_a, table_b, table_c, table_d = turns[0], turns[1], turns[2], turns[3]
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            turns[:] = 0
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                chunk_distances(queries[q], database, first, last, chunk)
                _mark_shared(tags[q], item_tags, first, last, shared, chunk)
                whole = (last - first) // 4 * 4
                for item in range(0, whole, 4):
                    table_a[chunk[item]] += 1
                    table_b[chunk[item + 1]] += 1
                    table_c[chunk[item + 2]] += 1
                    table_d[chunk[item + 3]] += 1
                for item in range(whole, last - first):
                    table_a[chunk[item]] += 1
            for bin_ in range(items_out.shape[1]):
                alone, together = turns[:, 2 * bin_].sum(), turns[:, 2 * bin_ + 1].sum()
                items_out[q, bin_] += alone + together
                relevant_out[q, bin_] += together


@jit(nogil=True, inline="always")
def _mark_shared(tags: Words, item_tags: Words, first: int, last: int, shared: Words, chunk: Words) -> None:
    """Double the distances of items first to last in `chunk`, and add 1 where an item shares a tag with the query."""
    parts = item_tags.shape[0]
    word, row = tags[0], item_tags[0]
    if parts == 1:
        for item in range(first, last):
            shared[item - first] = word & row[item]
    else:
        next_word, next_row = tags[1], item_tags[1]
        for item in range(first, last):
            shared[item - first] = (word & row[item]) | (next_word & next_row[item])
    for part in range(2, parts):
        word, row = tags[part], item_tags[part]
        for item in range(first, last):
            shared[item - first] |= word & row[item]
    for item in range(last - first):
        chunk[item] = (chunk[item] << np.uint64(1)) + np.uint64(shared[item] != 0)
