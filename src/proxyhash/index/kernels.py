"""Compiled searches that pass over only the shells of each group that can matter.

Codes lie as words (W, N), ordered by group and inside a group by distance to its centre, so that a shell (all codes of a
group at one distance) is one stretch of memory: `shells[g, s]` is where shell s of group g begins, `shells[g, s + 1]` where
it ends. By the triangle inequality a code x of shell s is at least |d(q, c) - s| from a query q.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.support.compiled import kernel

CHUNK = 256  # codes whose distances are computed together
BLOCK = 8192  # codes that a query passes over before the next query's turn: they stay in the cache

Whole = int | np.integer[Any]
Longs = NDArray[np.int64]
Starts = NDArray[np.uint32]  # positions and places in memory: a code costs its words and four bytes
Spans = NDArray[np.int16]  # the lowest and the highest shell of each group that hold a code (C, 2)


@kernel(nogil=True, inline="always")
def chunk_distances(queries: Words, q: int, words: Words, first: Whole, last: Whole, out: Words) -> Whole:
    """Write the distances of codes first to last from query q into `out` and return the smallest."""
    row, word, least = words[0, first:last], queries[q, 0], np.uint64(2**20)
    for item in range(len(row)):
        out[item] = popcount(word ^ row[item])
        least = min(least, out[item])
    if words.shape[0] > 1:
        least = _add_words(queries, q, words, first, last, out)
    return np.int64(least)


@kernel(nogil=True)
def _add_words(queries: Words, q: int, words: Words, first: Whole, last: Whole, out: Words) -> np.uint64:
    """Add the distances of the words after the first to `out`, and return the smallest sum."""
    for part in range(1, words.shape[0]):
        row, word = words[part, first:last], queries[q, part]
        for item in range(len(row)):
            out[item] += popcount(word ^ row[item])
    least = np.uint64(2**20)
    for item in range(last - first):
        least = min(least, out[item])
    return least


@kernel(nogil=True, inline="always")
def to_centre(queries: Words, q: int, centres: Words, centre: Whole) -> Whole:
    """Return the distance of query q to one of centres (W, C)."""
    total = np.int64(0)
    for part in range(centres.shape[0]):
        total += np.int64(popcount(queries[q, part] ^ centres[part, centre]))
    return total


@kernel(nogil=True, inline="always")
def _order_centres(queries: Words, q: int, centres: Words, distance: Longs, order: Longs, begins: Longs) -> None:
    """Write the distances to the centres, and the centres' numbers, nearest first: a counting sort."""
    begins[:] = 0
    for centre in range(centres.shape[1]):
        distance[centre] = to_centre(queries, q, centres, centre)
        begins[distance[centre] + 1] += 1
    for bin_ in range(1, len(begins)):
        begins[bin_] += begins[bin_ - 1]
    for centre in range(centres.shape[1]):
        order[begins[distance[centre]]] = centre
        begins[distance[centre]] += 1


@kernel(nogil=True)
def _replace_worst(keys: Words, places: Longs, q: int, key: np.uint64, place: Whole) -> None:
    """Put a better one in the place of the worst of the k that query q holds: a heap with the largest key on top."""
    root, count = 0, keys.shape[1]
    while True:
        child = 2 * root + 1
        if child >= count:
            break
        if child + 1 < count and keys[q, child + 1] > keys[q, child]:
            child += 1
        if keys[q, child] <= key:
            break
        keys[q, root], places[q, root] = keys[q, child], places[q, child]
        root = child
    keys[q, root], places[q, root] = key, place


@kernel(nogil=True)
def _add(keys: Words, places: Longs, q: int, leaf: Whole, key: np.uint64, place: Whole) -> None:
    """Add one to the `leaf` that query q holds so far."""
    while leaf > 0 and keys[q, (leaf - 1) // 2] < key:
        parent = (leaf - 1) // 2
        keys[q, leaf], places[q, leaf] = keys[q, parent], places[q, parent]
        leaf = parent
    keys[q, leaf], places[q, leaf] = key, place


@kernel(nogil=True)
def _take(
    queries: Words, q: int, words: Words, positions: Starts, first: Whole, last: Whole,
    keys: Words, places: Longs, held: Longs, chunk: Words,
) -> None:  # fmt: skip
    """Pass over codes first to last and keep the best by (distance, position) in row q of `keys` and `places`.

    A key is the distance in its high half and the position in its low: one comparison settles ties.
    """
    k = keys.shape[1]
    for begin in range(first, last, CHUNK):
        end = min(begin + CHUNK, last)
        least = chunk_distances(queries, q, words, begin, end, chunk)
        if held[q] == k and least > np.int64(keys[q, 0] >> np.uint64(32)):
            continue
        for item in range(end - begin):
            if held[q] < k:
                key = (chunk[item] << np.uint64(32)) | np.uint64(positions[begin + item])
                _add(keys, places, q, held[q], key, begin + item)
                held[q] += 1
            elif chunk[item] <= keys[q, 0] >> np.uint64(32):
                key = (chunk[item] << np.uint64(32)) | np.uint64(positions[begin + item])
                if key < keys[q, 0]:
                    _replace_worst(keys, places, q, key, begin + item)


@kernel(nogil=True)
def nearest_plain(queries: Words, words: Words, positions: Starts, keys: Words, places: Longs) -> None:
    """Write the k nearest of each query by a pass over all codes, a block of them at a time for every query."""
    chunk, held = np.empty(CHUNK, np.uint64), np.zeros(len(queries), np.int64)
    for first in range(0, words.shape[1], BLOCK):
        last = min(first + BLOCK, words.shape[1])
        for q in range(len(queries)):
            _take(queries, q, words, positions, first, last, keys, places, held, chunk)
    _put_in_order(keys, places)


@kernel(nogil=True)
def _put_in_order(keys: Words, places: Longs) -> None:
    """Order what each query holds, best first."""
    for q in range(len(keys)):
        order = np.argsort(keys[q])
        keys[q], places[q] = keys[q][order], places[q][order]


@kernel(nogil=True, inline="always")
def _least(word: np.uint64, words: Words, first: Whole, last: Whole) -> Whole:
    """Return the smallest distance of codes of one word, first to last: most stretches hold nothing, and end here."""
    least = np.int64(64)
    for item in range(np.uint64(first), np.uint64(last)):  # unsigned: an index from the end need not be thought of
        least = min(least, np.int64(popcount(word ^ words[0, item])))
    return least


@kernel(nogil=True, inline="always")
def _visit(
    queries: Words, q: int, words: Words, positions: Starts, shells: Starts, spans: Spans, group: Whole, centre: Whole,
    keys: Words, places: Longs, held: Longs, looked: Longs, chunk: Words,
) -> None:  # fmt: skip
    """Pass over those shells of a group that can hold one of the k nearest; `centre` is the query's distance to its centre.

    A shell is left out only if its bound is strictly above the k-th distance: an equal one may hold an earlier position.
    """
    limit = np.int64(keys[q, 0] >> np.uint64(32))
    first = np.int64(shells[group, max(np.int64(spans[group, 0]), centre - limit)])
    last = np.int64(shells[group, min(np.int64(spans[group, 1]), centre + limit) + 1])
    if words.shape[0] > 1 or _least(queries[q, 0], words, first, last) <= limit:
        _take(queries, q, words, positions, first, last, keys, places, held, chunk)
    looked[q] += last - first


@kernel(nogil=True)
def _fill(
    queries: Words, q: int, words: Words, positions: Starts, shells: Starts, spans: Spans, group: Whole, centre: Whole,
    keys: Words, places: Longs, held: Longs, looked: Longs, chunk: Words,
) -> None:  # fmt: skip
    """Do so while fewer than k are held: shells in the order of their bounds, so that the k-th distance falls fast."""
    for bound in range(shells.shape[1]):
        if held[q] == keys.shape[1] and bound > np.int64(keys[q, 0] >> np.uint64(32)):
            break
        for side in range(2 if bound else 1):
            shell = centre - bound if side == 0 else centre + bound
            if spans[group, 0] <= shell <= spans[group, 1]:
                first, last = np.int64(shells[group, shell]), np.int64(shells[group, shell + 1])
                _take(queries, q, words, positions, first, last, keys, places, held, chunk)
                looked[q] += last - first


@kernel(nogil=True)
def nearest_grouped(
    queries: Words, words: Words, positions: Starts, centres: Words, shells: Starts, spans: Spans, alone: int,
    keys: Words, places: Longs, looked: Longs,
) -> None:  # fmt: skip
    """Write the k nearest of each query: `keys` (Q, k) of distance and position, `places` (Q, k) in memory, k <= N.

    Each query first looks at the `alone` groups with the nearest centres, nearest first, which bring its k-th distance
    down; then group after group stays in the cache while all queries that need it pass over it. `looked` (Q,) counts.
    """
    count, bits, k = len(shells), shells.shape[1] - 2, keys.shape[1]
    distance, order = np.empty(count, np.int64), np.empty(count, np.int64)
    begins, chunk = np.empty(shells.shape[1], np.int64), np.empty(CHUNK, np.uint64)
    held, seen = np.zeros(len(queries), np.int64), np.zeros((len(queries), count), np.bool_)
    limits = np.full(len(queries), bits, np.int64)
    for q in range(len(queries)):
        _order_centres(queries, q, centres, distance, order, begins)
        for turn in range(min(alone, count)):
            group = order[turn]
            seen[q, group] = True
            if held[q] < k:
                _fill(queries, q, words, positions, shells, spans, group, distance[group], keys, places, held, looked, chunk)
                limits[q] = np.int64(keys[q, 0] >> np.uint64(32)) if held[q] == k else bits
            elif distance[group] - spans[group, 1] <= limits[q] and spans[group, 0] - distance[group] <= limits[q]:
                _visit(
                    queries, q, words, positions, shells, spans, group, distance[group], keys, places, held, looked, chunk
                )
                limits[q] = np.int64(keys[q, 0] >> np.uint64(32))
    for group in range(count if alone < count else 0):
        low, high = np.int64(spans[group, 0]), np.int64(spans[group, 1])
        for q in range(len(queries)):
            centre = to_centre(queries, q, centres, group)
            if centre - high <= limits[q] and low - centre <= limits[q] and not seen[q, group]:
                if held[q] < k:
                    _fill(queries, q, words, positions, shells, spans, group, centre, keys, places, held, looked, chunk)
                else:
                    _visit(queries, q, words, positions, shells, spans, group, centre, keys, places, held, looked, chunk)
                limits[q] = np.int64(keys[q, 0] >> np.uint64(32)) if held[q] == k else bits
    _put_in_order(keys, places)


@kernel(nogil=True, inline="always")
def _collect(
    queries: Words, q: int, words: Words, positions: Starts, first: Whole, last: Whole, radius: Whole,
    ends: Longs, keys: Words, places: Longs, write: bool, chunk: Words,
) -> None:  # fmt: skip
    """Advance `ends[q]` by the codes first to last within `radius` of query q; if `write`, put keys and places there."""
    for begin in range(first, last, CHUNK):
        stop = min(begin + CHUNK, last)
        if chunk_distances(queries, q, words, begin, stop, chunk) > radius:
            continue
        for item in range(stop - begin):
            if np.int64(chunk[item]) <= radius:
                if write:
                    keys[ends[q]] = (chunk[item] << np.uint64(32)) | np.uint64(positions[begin + item])
                    places[ends[q]] = begin + item
                ends[q] += 1


@kernel(nogil=True)
def within_plain(
    queries: Words, words: Words, positions: Starts, radius: Whole, ends: Longs, keys: Words, places: Longs, write: bool
) -> None:
    """Advance `ends` (Q,) by the codes within `radius` of each query; if `write`, put keys and places there."""
    chunk = np.empty(CHUNK, np.uint64)
    for first in range(0, words.shape[1], BLOCK):
        last = min(first + BLOCK, words.shape[1])
        for q in range(len(queries)):
            _collect(queries, q, words, positions, first, last, radius, ends, keys, places, write, chunk)


@kernel(nogil=True)
def within_grouped(
    queries: Words, words: Words, positions: Starts, centres: Words, shells: Starts, radius: Whole,
    ends: Longs, keys: Words, places: Longs, write: bool,
) -> None:  # fmt: skip
    """Do the same, in the shells of each group that the triangle inequality leaves: one stretch of memory."""
    bits = shells.shape[1] - 2
    chunk = np.empty(CHUNK, np.uint64)
    for group in range(len(shells)):
        for q in range(len(queries)):
            centre = to_centre(queries, q, centres, group)
            low, high = max(0, centre - radius), min(bits, centre + radius)
            if low <= high:
                first, last = np.int64(shells[group, low]), np.int64(shells[group, high + 1])
                _collect(queries, q, words, positions, first, last, radius, ends, keys, places, write, chunk)
