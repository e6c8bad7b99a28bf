"""Compiled loops that put codes into groups, and read them back: see `groups` for how these lie in memory."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.bit_planes import join_block, slice_block
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import CHUNK, chunk_distances, popcount
from proxyhash.index.clusters.layout import Groups
from proxyhash.index.item_ids import Longs, Starts, Whole, position_at, put_position
from proxyhash.utils.jit import jit


@jit(nogil=True)
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
                chunk_distances(centres[centre], words, first, last, distance)
                for item in range(last - first):
                    best[item] = min(best[item], (np.int64(distance[item]) << 16) + centre)
        for item in range(last - first):
            out[first + item] = best[item] & 0xFFFF


@jit(nogil=True)
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


@jit(nogil=True)
def place_in_groups(codes: Words, positions: Starts, own: NDArray[np.uint16], groups: Groups, ends: Longs) -> None:
    """Append codes (W, n) to their `own` groups, which have grown to the places `ends` (C,) so far.

    They lie there as words, in the room of the planes that `order_group` makes of them.
    """
    for item in range(len(positions)):
        to = ends[own[item]]
        ends[own[item]] += 1
        put_position(groups.positions, to, positions[item])
        block, lane = to // BLOCK, to % BLOCK
        for part in range(len(codes)):
            groups.planes[block, 64 * part + lane // 4, lane % 4] = codes[part, item]


@jit(nogil=True)
def order_group(groups: Groups, group: Whole, count: Whole) -> None:
    """Order the `count` codes of a group by distance to the centre, stably, and turn them into planes."""
    first, parts = groups.starts[group], groups.centres.shape[1]
    words, numbers = np.empty((parts, count), np.uint64), np.empty(count, np.uint32)
    begins = np.zeros(64 * parts + 2, np.int64)
    distance = _take_out(groups, group, words, numbers)
    for item in range(count):
        begins[distance[item] + 1] += 1
    for shell in range(1, len(begins)):
        begins[shell] += begins[shell - 1]
    ordered, shells = np.empty_like(words), np.empty(count, np.int64)
    for item in range(count):
        to = begins[distance[item]]
        begins[distance[item]] += 1
        ordered[:, to], shells[to] = words[:, item], distance[item]
        put_position(groups.positions, first * BLOCK + to, numbers[item])
    for begin in range(0, count, BLOCK):
        block, last = first + begin // BLOCK, min(begin + BLOCK, count) - 1
        groups.shells[block, 0], groups.shells[block, 1] = shells[begin], shells[last]
        _write_block(ordered, begin, groups.planes[block])
    if count:
        groups.spans[group, 0], groups.spans[group, 1] = shells[0], shells[count - 1]


@jit(nogil=True)
def _take_out(groups: Groups, group: Whole, words: Words, numbers: Starts) -> Longs:
    """Copy where the codes of a group differ from its centre, and their positions; return by how many bits they do."""
    first, distance = groups.starts[group], np.zeros(len(numbers), np.int64)
    for item in range(len(numbers)):
        block, lane = first + item // BLOCK, item % BLOCK
        numbers[item] = position_at(groups.positions, first * BLOCK + item)
        for part in range(len(words)):
            words[part, item] = groups.planes[block, 64 * part + lane // 4, lane % 4] ^ groups.centres[group, part]
            distance[item] += np.int64(popcount(words[part, item]))
    return distance


@jit(nogil=True)
def _write_block(words: Words, first: int, planes: Words) -> None:
    """Write words (W, n), from `first` on, as the planes of one block."""
    square = np.empty((64, 4), np.uint64)
    for part in range(len(words)):
        slice_block(words[part], first, square)
        planes[64 * part : 64 * part + 64] = square
    planes[-1] = 0
    for lane in range(words.shape[1] - first, BLOCK):
        planes[-1, lane // 64] |= np.uint64(1) << np.uint64(lane % 64)


@jit(nogil=True)
def read_codes(groups: Groups, places: Longs, out: Words) -> None:
    """Write to `out` (n, W) the codes that lie at some places."""
    for item in range(len(places)):
        block, lane = places[item] // BLOCK, places[item] % BLOCK
        group = np.searchsorted(groups.starts, block, side="right") - 1
        for part in range(out.shape[1]):
            word = groups.centres[group, part]
            for bit in range(64):
                plane = groups.planes[block, 64 * part + bit, lane // 64]
                word ^= (plane >> np.uint64(lane % 64) & np.uint64(1)) << np.uint64(bit)
            out[item, part] = word


@jit(nogil=True)
def read_block(groups: Groups, group: Whole, block: Whole, square: Words, out: Words) -> None:
    """Write to `out` (W, 256) all codes of a block; `square` is scratch space (64, 4)."""
    for part in range(len(out)):
        join_block(groups.planes[block, 64 * part : 64 * part + 64], square, out[part])
        for lane in range(BLOCK):
            out[part, lane] ^= groups.centres[group, part]


@jit(nogil=True)
def read_all(groups: Groups, out: Words) -> None:
    """Write to `out` (W, 256 B) all codes, whether there is one or not."""
    square = np.empty((64, 4), np.uint64)
    for group in range(len(groups.centres)):
        for block in range(groups.starts[group], groups.starts[group + 1]):
            read_block(groups, group, block, square, out[:, block * BLOCK : block * BLOCK + BLOCK])
