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

from proxyhash.codes.bits import MAX_BITS, Words
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


@jit(nogil=True, inline="always")
def _least_of_four(queries: Words, q: int, database: Words, first: int, last: int, chunk: Words, least: Int64Array) -> None:
    """Write to `least` (4,) the smallest distance from queries q to q + 3 to items first to last; `chunk` is scratch space.

    A single query is compared alone; with fewer than four queries left, the last one is repeated.
    """
    end = len(queries) - 1
    if database.shape[0] == 1 and q == end:
        row, only, nearest_to_it = database[0], queries[q, 0], np.int64(MAX_BITS)
        for item in range(first, last):
            nearest_to_it = min(nearest_to_it, np.int64(popcount(only ^ row[item])))
        least[0] = nearest_to_it
        return
    if database.shape[0] == 1:
        row = database[0]
        a, b, c, d = queries[q, 0], queries[min(q + 1, end), 0], queries[min(q + 2, end), 0], queries[min(q + 3, end), 0]
        to_a, to_b, to_c, to_d = np.int64(MAX_BITS), np.int64(MAX_BITS), np.int64(MAX_BITS), np.int64(MAX_BITS)
        for item in range(first, last):
            word = row[item]
            to_a = min(to_a, np.int64(popcount(a ^ word)))
            to_b = min(to_b, np.int64(popcount(b ^ word)))
            to_c = min(to_c, np.int64(popcount(c ^ word)))
            to_d = min(to_d, np.int64(popcount(d ^ word)))
        least[0], least[1], least[2], least[3] = to_a, to_b, to_c, to_d
        return
    for j in range(4):
        chunk_distances(queries[min(q + j, end)], database, first, last, chunk)
        nearest = np.uint64(MAX_BITS)
        for item in range(last - first):
            nearest = min(nearest, chunk[item])
        least[j] = nearest


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
def collect_range(
    queries: Words, database: Words, radius: int, ends: Int64Array, near: Int16Array, position: Int64Array, write: bool
) -> None:
    """Advance `ends` (Q,) by the number of items within `radius`; if `write`, store their distances and positions.

    The first pass counts, the second writes, in the order of the database.
    """
    items = database.shape[1]
    chunk, least = np.empty(CHUNK, np.uint64), np.empty(4, np.int64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(0, len(queries), 4):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                _least_of_four(queries, q, database, first, last, chunk, least)
                for j in range(min(4, len(queries) - q)):
                    if least[j] <= radius:
                        chunk_distances(queries[q + j], database, first, last, chunk)
                        for item in range(last - first):
                            if chunk[item] <= radius:
                                if write:
                                    near[ends[q + j]], position[ends[q + j]] = chunk[item], first + item
                                ends[q + j] += 1


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
def nearest_rows(queries: Words, database: Words, k: int, near: Int16Array, position: Int64Array) -> None:
    """Write distances and positions of the k nearest items to the first k columns of (Q, 2k), k <= N.

    Candidates are collected in a buffer of 2k entries. When it is full, the k best are kept, and from then on an item must
    be nearer than the k-th; ties go to the earlier item. Most chunks are skipped because their least distance is larger.
    """
    items, bins = database.shape[1], 64 * database.shape[0] + 1
    chunk, least = np.empty(CHUNK, np.uint64), np.empty(4, np.int64)
    held = np.zeros(len(queries), np.int64)
    limit = np.full(len(queries), bins, np.int64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(0, len(queries), 4):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                _least_of_four(queries, q, database, first, last, chunk, least)
                for j in range(min(4, len(queries) - q)):
                    if least[j] < limit[q + j]:
                        chunk_distances(queries[q + j], database, first, last, chunk)
                        push_nearer(chunk, first, last, k, bins, near[q + j], position[q + j], held, limit, q + j)
    for q in range(len(queries)):
        sort_by_distance(near[q], position[q], held[q], bins)


@jit(nogil=True)
def push_nearer(
    chunk: Words,
    first: int,
    last: int,
    k: int,
    bins: int,
    near: Int16Array,
    position: Int64Array,
    held: Int64Array,
    limit: Int64Array,
    q: int,
) -> None:
    """Append the items of a chunk that are nearer than the limit of query q to its buffer."""
    for item in range(last - first):
        if chunk[item] < limit[q]:
            near[held[q]], position[held[q]] = chunk[item], first + item
            held[q] += 1
            if held[q] == 2 * k:
                sort_by_distance(near, position, 2 * k, bins)
                held[q], limit[q] = k, near[k - 1]


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
