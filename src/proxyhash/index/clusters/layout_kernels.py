"""Kernels that write codes to clusters and read them back; `layout` describes the arrays."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.bitsliced.slicing import join_block, slice_block
from proxyhash.codes.kernels import CHUNK, chunk_distances, popcount
from proxyhash.index.clusters.layout import Clusters
from proxyhash.index.item_ids import Int, Int64s, UInt32s, item_id_at, set_item_id
from proxyhash.utils.jit import jit


@jit(nogil=True)
def nearest_centroids(words: Words, centroids: Words, out: NDArray[np.uint16]) -> None:
    """Write to `out` (N,) the nearest of `centroids` (C, W) for each code of `words` (W, N); ties go to the lower id.

    Distance and id are packed into one number, so that one minimum also settles ties.
    """
    distance, best = np.empty(CHUNK, np.uint64), np.empty(CHUNK, np.int64)
    for first in range(0, words.shape[1], CHUNK):
        last = min(first + CHUNK, words.shape[1])
        best[:] = 2**60
        if words.shape[0] == 1:
            _nearest_of_words(words[0, first:last], centroids, best)
        else:
            for centroid in range(len(centroids)):
                chunk_distances(centroids[centroid], words, first, last, distance)
                for item in range(last - first):
                    best[item] = min(best[item], (np.int64(distance[item]) << 16) + centroid)
        for item in range(last - first):
            out[first + item] = best[item] & 0xFFFF


@jit(nogil=True)
def _nearest_of_words(row: Words, centroids: Words, best: Int64s) -> None:
    """Find the nearest centroids of codes of one word, four centroids for each load of a code."""
    end = len(centroids) - 1  # past the last centroid, the last one is repeated
    for centroid in range(0, len(centroids), 4):
        two, three, four = min(centroid + 1, end), min(centroid + 2, end), min(centroid + 3, end)
        a, b, c, d = centroids[centroid, 0], centroids[two, 0], centroids[three, 0], centroids[four, 0]
        for item in range(len(row)):
            word = row[item]
            to_a, to_b = (np.int64(popcount(a ^ word)) << 16) + centroid, (np.int64(popcount(b ^ word)) << 16) + two
            to_c, to_d = (np.int64(popcount(c ^ word)) << 16) + three, (np.int64(popcount(d ^ word)) << 16) + four
            best[item] = min(best[item], to_a, to_b, to_c, to_d)


@jit(nogil=True)
def append_to_clusters(codes: Words, item_ids: UInt32s, own: NDArray[np.uint16], clusters: Clusters, ends: Int64s) -> None:
    """Append codes (W, n) to their clusters `own` (n,), which are filled up to the slots `ends` (C,).

    They are stored as words, in the memory of the bit planes that `sort_cluster` makes of them.
    """
    for item in range(len(item_ids)):
        to = ends[own[item]]
        ends[own[item]] += 1
        set_item_id(clusters.item_ids, to, item_ids[item])
        block, lane = to // BLOCK, to % BLOCK
        for part in range(len(codes)):
            clusters.planes[block, 64 * part + lane // 4, lane % 4] = codes[part, item]


@jit(nogil=True)
def sort_cluster(clusters: Clusters, cluster: Int, count: Int) -> None:
    """Sort the `count` codes of a cluster stably by distance to the centroid, and turn them into bit planes."""
    first, parts = clusters.starts[cluster], clusters.centroids.shape[1]
    words, numbers = np.empty((parts, count), np.uint64), np.empty(count, np.uint32)
    begins = np.zeros(64 * parts + 2, np.int64)
    distance = _read_differences(clusters, cluster, words, numbers)
    for item in range(count):
        begins[distance[item] + 1] += 1
    for shell in range(1, len(begins)):
        begins[shell] += begins[shell - 1]
    ordered, shells = np.empty_like(words), np.empty(count, np.int64)
    for item in range(count):
        to = begins[distance[item]]
        begins[distance[item]] += 1
        ordered[:, to], shells[to] = words[:, item], distance[item]
        set_item_id(clusters.item_ids, first * BLOCK + to, numbers[item])
    for begin in range(0, count, BLOCK):
        block, last = first + begin // BLOCK, min(begin + BLOCK, count) - 1
        clusters.shells[block, 0], clusters.shells[block, 1] = shells[begin], shells[last]
        _write_block(ordered, begin, clusters.planes[block])
        clusters.hidden[block] = clusters.planes[block, -1]
    if count:
        clusters.spans[cluster, 0], clusters.spans[cluster, 1] = shells[0], shells[count - 1]


@jit(nogil=True)
def _read_differences(clusters: Clusters, cluster: Int, words: Words, numbers: UInt32s) -> Int64s:
    """Copy code XOR centroid (W, n) and the item ids (n,) of a cluster; return the distances to the centroid (n,)."""
    first, distance = clusters.starts[cluster], np.zeros(len(numbers), np.int64)
    for item in range(len(numbers)):
        block, lane = first + item // BLOCK, item % BLOCK
        numbers[item] = item_id_at(clusters.item_ids, first * BLOCK + item)
        for part in range(len(words)):
            words[part, item] = clusters.planes[block, 64 * part + lane // 4, lane % 4] ^ clusters.centroids[cluster, part]
            distance[item] += np.int64(popcount(words[part, item]))
    return distance


@jit(nogil=True)
def _write_block(words: Words, first: int, planes: Words) -> None:
    """Write words (W, n), from `first` on, as the bit planes of one block."""
    square = np.empty((64, 4), np.uint64)
    for part in range(len(words)):
        slice_block(words[part], first, square)
        planes[64 * part : 64 * part + 64] = square
    planes[-1] = 0
    for lane in range(words.shape[1] - first, BLOCK):
        planes[-1, lane // 64] |= np.uint64(1) << np.uint64(lane % 64)


@jit(nogil=True)
def read_codes(clusters: Clusters, slots: Int64s, out: Words) -> None:
    """Write to `out` (n, W) the codes in `slots` (n,)."""
    for item in range(len(slots)):
        block, lane = slots[item] // BLOCK, slots[item] % BLOCK
        cluster = np.searchsorted(clusters.starts, block, side="right") - 1
        for part in range(out.shape[1]):
            word = clusters.centroids[cluster, part]
            for bit in range(64):
                plane = clusters.planes[block, 64 * part + bit, lane // 64]
                word ^= (plane >> np.uint64(lane % 64) & np.uint64(1)) << np.uint64(bit)
            out[item, part] = word


@jit(nogil=True)
def read_block(clusters: Clusters, cluster: Int, block: Int, square: Words, out: Words) -> None:
    """Write all codes of a block to `out` (W, 256); `square` (64, 4) is scratch space."""
    for part in range(len(out)):
        join_block(clusters.planes[block, 64 * part : 64 * part + 64], square, out[part])
        for lane in range(BLOCK):
            out[part, lane] ^= clusters.centroids[cluster, part]


@jit(nogil=True)
def read_all(clusters: Clusters, out: Words) -> None:
    """Write the codes of all slots to `out` (W, 256 B), empty slots included."""
    square = np.empty((64, 4), np.uint64)
    for cluster in range(len(clusters.centroids)):
        for block in range(clusters.starts[cluster], clusters.starts[cluster + 1]):
            read_block(clusters, cluster, block, square, out[:, block * BLOCK : block * BLOCK + BLOCK])
