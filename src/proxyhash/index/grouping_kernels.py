"""Compiled loops that put codes into groups, and link near ones: see `kernels` for how groups and shells lie in memory."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.index.kernels import CHUNK, Longs, Starts, Whole, chunk_distances, to_centre
from proxyhash.support.compiled import kernel


@kernel(nogil=True)
def nearest_centres(words: Words, centres: Words, out: NDArray[np.uint16]) -> None:
    """Write for each code of (W, N) the number of the nearest of centres (C, W), the first of several.

    Distance and number are compared as one, so that the smaller of two settles ties too.
    """
    distance, best = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.int64)
    for first in range(0, words.shape[1], CHUNK):
        last = min(first + CHUNK, words.shape[1])
        best[:] = 2**60
        if words.shape[0] == 1:
            _nearest_of_words(words[0, first:last], centres, best)
        else:
            for centre in range(len(centres)):
                chunk_distances(centres, centre, words, first, last, distance)
                for item in range(last - first):
                    best[item] = min(best[item], (np.int64(distance[item]) << 16) + centre)
        for item in range(last - first):
            out[first + item] = best[item] & 0xFFFF


@kernel(nogil=True)
def _nearest_of_words(row: Words, centres: Words, best: Longs) -> None:
    """Do so for codes of one word, with four centres at a time: one load serves four."""
    end = len(centres) - 1  # past the last, the last comes again
    for centre in range(0, len(centres), 4):
        two, three, four = min(centre + 1, end), min(centre + 2, end), min(centre + 3, end)
        a, b, c, d = centres[centre, 0], centres[two, 0], centres[three, 0], centres[four, 0]
        for item in range(len(row)):
            word = row[item]
            to_a, to_b = (np.int64(popcount(a ^ word)) << 16) + centre, (np.int64(popcount(b ^ word)) << 16) + two
            to_c, to_d = (np.int64(popcount(c ^ word)) << 16) + three, (np.int64(popcount(d ^ word)) << 16) + four
            best[item] = min(best[item], to_a, to_b, to_c, to_d)


@kernel(nogil=True)
def order_group(words: Words, positions: Starts, centre: Words, first: Whole, last: Whole, starts: Starts) -> None:
    """Order the codes first to last by distance to their centre, stably, and write where each shell begins: `starts`."""
    count, parts = last - first, words.shape[0]
    distance = np.empty(count, np.int64)
    sizes = np.zeros(len(starts), np.int64)
    for item in range(count):
        total = np.int64(0)
        for part in range(parts):
            total += np.int64(popcount(words[part, first + item] ^ centre[part]))
        distance[item] = total
        sizes[total + 1] += 1
    place = np.empty(len(starts), np.int64)
    place[0] = first
    for shell in range(1, len(starts)):
        place[shell] = place[shell - 1] + sizes[shell]
    for shell in range(len(starts)):
        starts[shell] = place[shell]
    old_words, old_positions = words[:, first:last].copy(), positions[first:last].copy()
    for item in range(count):
        to = place[distance[item]]
        place[distance[item]] += 1
        positions[to] = old_positions[item]
        for part in range(parts):
            words[part, to] = old_words[part, item]


@kernel(nogil=True)
def place_in_groups(
    codes: Words, positions: Starts, groups: NDArray[np.uint16], words: Words, out: Starts, ends: Longs
) -> None:
    """Append codes (W, n) to their groups in `words` (W, N), which have grown to `ends` (C,) so far."""
    for item in range(len(positions)):
        to = ends[groups[item]]
        ends[groups[item]] += 1
        out[to] = positions[item]
        for part in range(codes.shape[0]):
            words[part, to] = codes[part, item]


@kernel(nogil=True, inline="always")
def _root(parent: Longs, item: Whole) -> Whole:
    """Return what stands for the component of an item, and shorten the way there."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@kernel(nogil=True)
def _link_stretch(words: Words, item: Whole, first: Whole, last: Whole, radius: Whole, parent: Longs, chunk: Words) -> None:
    """Unite the component of one code with those of all codes first to last within `radius`."""
    query = words[:, item : item + 1].copy().T
    for begin in range(first, last, CHUNK):
        end = min(begin + CHUNK, last)
        if chunk_distances(query, 0, words, begin, end, chunk) <= radius:
            for offset in range(end - begin):
                if np.int64(chunk[offset]) <= radius:
                    parent[_root(parent, begin + offset)] = _root(parent, item)


@kernel(nogil=True)
def link_plain(words: Words, radius: Whole, parent: Longs, items: Whole, until: Whole) -> None:
    """Unite the codes `items` to `until` with every later one within `radius`; no pair is ever stored."""
    chunk = np.empty(CHUNK, np.uint64)
    for item in range(items, until):
        _link_stretch(words, item, item + 1, words.shape[1], radius, parent, chunk)


@kernel(nogil=True)
def link_grouped(
    words: Words, centres: Words, shells: Starts, radius: Whole, parent: Longs, items: Whole, until: Whole
) -> None:
    """Do the same, looking only at the shells that the triangle inequality leaves."""
    chunk, bits = np.empty(CHUNK, np.uint64), shells.shape[1] - 2
    for item in range(items, until):
        query = words[:, item : item + 1].copy().T
        for group in range(len(shells)):
            centre = to_centre(query, 0, centres, group)
            low, high = max(0, centre - radius), min(bits, centre + radius)
            if low <= high:
                first = np.int64(max(shells[group, low], item + 1))
                last = np.int64(shells[group, high + 1])
                if last > first:
                    _link_stretch(words, item, first, last, radius, parent, chunk)
