"""Compiled loops over Hamming distances. Each runs on one thread and holds no lock; whoever calls them splits the work.

All take queries (Q, W) and a database (W, N) of 64-bit words. Blocks of the database are the outer loop, so that a block
stays in the cache while every query passes over it. Inside, distances of a small chunk are computed first, which compilers
turn into vector instructions, and looked at afterwards. Distances are small integers: nothing is ever sorted by comparison.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from proxyhash.codes.bits import MAX_BITS, Words
from proxyhash.support.compiled import kernel

BLOCK = 2048  # codes a query passes over before the next query's turn: 16 KB at 64 bits, half of a first-level cache
CHUNK = 128  # codes whose distances are computed together

Shorts = NDArray[np.int16]
Longs = NDArray[np.int64]


@intrinsic
def _popcount(typing_context: Any, word: Any) -> Any:  # noqa: ARG001
    """Count the ones of a 64-bit word by the instruction that does just that."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = _popcount  # typed for callers inside kernels, where the typing context is not passed


@kernel(nogil=True, inline="always")
def _chunk_distances(query: Words, database: Words, first: int, last: int, out: Words) -> None:
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


@kernel(nogil=True, inline="always")
def _least_distance(query: Words, database: Words, first: int, last: int, out: Words) -> np.uint64:
    """Return the smallest distance of items first to last; `out` is scratch space. For one word nothing is written."""
    least = np.uint64(MAX_BITS)
    if database.shape[0] == 1:
        word, row = query[0], database[0]
        for item in range(first, last):
            least = min(least, popcount(word ^ row[item]))
        return least
    _chunk_distances(query, database, first, last, out)
    for item in range(last - first):
        least = min(least, out[item])
    return least


@kernel(nogil=True)
def distance_rows(queries: Words, database: Words, out: Shorts) -> None:
    """Fill `out` (Q, N) with all distances."""
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                _chunk_distances(queries[q], database, first, last, chunk)
                for item in range(first, last):
                    out[q, item] = chunk[item - first]


@kernel(nogil=True)
def histogram_rows(queries: Words, database: Words, out: Longs) -> None:
    """Add to `out` (Q, bins) how many items lie at each distance.

    Four histograms are filled in turn: neighbouring items often fall into one bin, and would wait for each other there.
    """
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    turns = np.zeros((4, out.shape[1]), np.int64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            turns[:] = 0
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                _chunk_distances(queries[q], database, first, last, chunk)
                whole = (last - first) // 4 * 4
                for item in range(0, whole, 4):
                    turns[0, chunk[item]] += 1
                    turns[1, chunk[item + 1]] += 1
                    turns[2, chunk[item + 2]] += 1
                    turns[3, chunk[item + 3]] += 1
                for item in range(whole, last - first):
                    turns[0, chunk[item]] += 1
            for bin_ in range(out.shape[1]):
                out[q, bin_] += turns[0, bin_] + turns[1, bin_] + turns[2, bin_] + turns[3, bin_]


@kernel(nogil=True)
def count_within(queries: Words, database: Words, radius: int, out: Longs) -> None:
    """Write to `out` (Q,) how many items lie within `radius`."""
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    out[:] = 0
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                if _least_distance(queries[q], database, first, last, chunk) <= radius:
                    _chunk_distances(queries[q], database, first, last, chunk)
                    for item in range(last - first):
                        out[q] += chunk[item] <= radius


@kernel(nogil=True)
def collect_within(queries: Words, database: Words, radius: int, ends: Longs, near: Shorts, position: Longs) -> None:
    """Write distances and positions of the items within `radius`, in the order of the database; `ends` (Q,) are advanced."""
    items = database.shape[1]
    chunk = np.empty(CHUNK, np.uint64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                if _least_distance(queries[q], database, first, last, chunk) <= radius:
                    _chunk_distances(queries[q], database, first, last, chunk)
                    for item in range(last - first):
                        if chunk[item] <= radius:
                            near[ends[q]] = chunk[item]
                            position[ends[q]] = first + item
                            ends[q] += 1


@kernel(nogil=True)
def sort_by_distance(near: Shorts, position: Longs, count: int, bins: int) -> None:
    """Order the first `count` entries by distance, in place and stably: a counting sort."""
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


@kernel(nogil=True)
def nearest_rows(queries: Words, database: Words, k: int, offset: int, near: Shorts, position: Longs) -> None:
    """Write distances and positions (plus `offset`) of the k nearest items to the first k columns of (Q, 2k), k <= N.

    Candidates gather in twice k places. When these are full the k best stay, and from then on an item must be nearer than
    the k-th: an equal one comes later, and ties go to the earlier. Most chunks are passed over by their least distance.
    """
    items, bins = database.shape[1], 64 * database.shape[0] + 1
    chunk = np.empty(CHUNK, np.uint64)
    held = np.zeros(len(queries), np.int64)
    limit = np.full(len(queries), bins, np.int64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                if _least_distance(queries[q], database, first, last, chunk) >= limit[q]:
                    continue
                _chunk_distances(queries[q], database, first, last, chunk)
                for item in range(last - first):
                    if chunk[item] < limit[q]:
                        near[q, held[q]], position[q, held[q]] = chunk[item], first + item + offset
                        held[q] += 1
                        if held[q] == 2 * k:
                            sort_by_distance(near[q], position[q], 2 * k, bins)
                            held[q], limit[q] = k, near[q, k - 1]
    for q in range(len(queries)):
        sort_by_distance(near[q], position[q], held[q], bins)


@kernel(nogil=True)
def tagged_histogram_rows(queries: Words, database: Words, tags: Words, item_tags: Words, out: Longs) -> None:
    """Add to `out` (Q, bins) how many items that share a tag with the query lie at each distance.

    `tags` (Q, T) and `item_tags` (T, N) hold one bit a tag. Whether a tag is shared becomes 0 or 1 and is what is added.
    """
    items = database.shape[1]
    chunk, shared = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.uint64)
    turns = np.zeros((2, out.shape[1]), np.int64)
    for start in range(0, items, BLOCK):
        stop = min(start + BLOCK, items)
        for q in range(len(queries)):
            turns[:] = 0
            for first in range(start, stop, CHUNK):
                last = min(first + CHUNK, stop)
                _chunk_distances(queries[q], database, first, last, chunk)
                shared[:] = 0
                for part in range(item_tags.shape[0]):
                    word, row = tags[q, part], item_tags[part]
                    for item in range(first, last):
                        shared[item - first] |= word & row[item]
                for item in range(last - first):
                    turns[item & 1, chunk[item]] += shared[item] != 0
            for bin_ in range(out.shape[1]):
                out[q, bin_] += turns[0, bin_] + turns[1, bin_]
