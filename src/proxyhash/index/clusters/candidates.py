"""Kernels that test a batch of queries against one block of a cluster; see `layout`."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import popcount
from proxyhash.index.clusters.bit_counts import (
    DISTANCE_PLANES,
    PER_ROUND,
    add_differences,
    list_planes,
    reaches,
    reaches_far,
)
from proxyhash.index.clusters.layout import Clusters, Pairs
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.utils.jit import jit

_BYTE_PLANES = np.array([(*(4 * i for i in range(8) if byte >> i & 1), *[0] * 8)[:8] for byte in range(256)], np.uint16)
"""(256, 8): offsets of the bit planes of the bits set in a byte, then zeros"""


class QueryBatch(NamedTuple):
    """Up to Q queries that scan a cluster together, so that a block is still in the cache for the next query."""

    query: Int64s
    """(Q,): index of the query"""
    to_centroid: Int64s
    """(Q,): distance from the query to the centroid"""
    diff: Words
    """(Q, W): query XOR centroid"""
    planes: NDArray[np.uint16]
    """(Q, 64 W + 8): word offsets of the planes of these bits in a block, padded with that of the last plane"""


class Candidates(NamedTuple):
    """Codes of a block within a limit: a mask of 256 bits (4,), and all distances bit-sliced (13, 4)."""

    mask: Words
    distances: Words
    bits: Words
    """(64,): scratch space"""
    levels: int
    """number of planes that a distance can need: one more than the logarithm of the code length"""


@jit(nogil=True)
def empty_query_batch(queries: Int, words: Int) -> QueryBatch:
    """Return an uninitialized batch for so many queries of so many words."""
    numbers, to_centroid = np.empty(queries, np.int64), np.empty(queries, np.int64)
    return QueryBatch(
        numbers,
        to_centroid,
        np.empty((queries, words), np.uint64),
        np.empty((queries, 64 * words + PER_ROUND), np.uint16),
    )


@jit(nogil=True)
def empty_candidates(words: Int) -> Candidates:
    """Return uninitialized candidates for codes of so many words."""
    levels = 1
    while 2**levels <= 64 * words:
        levels += 1
    return Candidates(np.empty(4, np.uint64), np.empty((DISTANCE_PLANES, 4), np.uint64), np.empty(64, np.uint64), levels)


@jit(nogil=True, skip_refcounts=True, inline="always")
def lowest_bit(mask: np.uint64) -> Int:
    """Return the index of the lowest set bit of a word."""
    return np.int64(popcount((mask & -mask) - np.uint64(1)))


@jit(nogil=True, skip_refcounts=True, inline="always")
def centroid_distance(queries: Words, q: Int, centroids: Words, cluster: Int) -> Int:
    """Return the Hamming distance of query q of (Q, W) to a centroid of (C, W)."""
    total = np.int64(0)
    for part in range(queries.shape[1]):
        total += np.int64(popcount(queries[q, part] ^ centroids[cluster, part]))
    return total


@jit(nogil=True, skip_refcounts=True, inline="always")
def can_reach(spans: Pairs, row: Int, to_centroid: Int, limit: Int) -> Any:
    """Return whether a shell of a span (lowest, highest) can hold a code within `limit`, by the triangle inequality."""
    return spans[row, 0] - to_centroid <= limit and to_centroid - spans[row, 1] <= limit


@jit(nogil=True, skip_refcounts=True, inline="always")
def load_query(batch: QueryBatch, row: Int, queries: Words, q: Int, clusters: Clusters, cluster: Int) -> None:
    """Store what the tests of a cluster's blocks need of query q."""
    found, parts = 0, queries.shape[1]
    for part in range(parts):
        word = queries[q, part] ^ clusters.centroids[cluster, part]
        batch.diff[row, part] = word
        found = list_planes(word, 256 * part, _BYTE_PLANES, batch.planes, row, found)
    for i in range(PER_ROUND):
        batch.planes[row, found + i] = 256 * parts
    batch.query[row], batch.to_centroid[row] = q, found


@jit(nogil=True, skip_refcounts=True, inline="always")
def can_contain(clusters: Clusters, block: Int, batch: QueryBatch, row: Int, limit: Int) -> bool:
    """Return whether a block holds a code within `limit` of a query; True may be wrong if it has several shells."""
    to_centroid = batch.to_centroid[row]
    least, rounds = (
        (to_centroid + clusters.shells[block, 0] - limit + 1) >> 1,
        (to_centroid + PER_ROUND - 1) // PER_ROUND,
    )
    if least <= 0:
        return True
    if least <= 64:
        return bool(reaches(clusters.planes, clusters.hidden, block, batch.planes, row, rounds, least))
    return bool(reaches_far(clusters.planes, clusters.hidden, block, batch.planes, row, rounds, least))


@jit(nogil=True, skip_refcounts=True)
def find_candidates(clusters: Clusters, block: Int, batch: QueryBatch, row: Int, limit: Int, candidates: Candidates) -> None:
    """Find the codes of a block within `limit` of a query."""
    candidates.distances[:] = 0
    for part in range(batch.diff.shape[1]):
        for bit in range(64):
            candidates.bits[bit] = np.uint64(0) - (batch.diff[row, part] >> np.uint64(bit) & np.uint64(1))
        add_differences(clusters.planes, block, part, candidates.bits, candidates.distances)
    for word in range(4):
        above = np.uint64(0)
        for level in range(candidates.levels):  # from the lowest bit up: the highest bit that differs decides
            plane = candidates.distances[level, word]
            above = plane & above if min(limit, 2**candidates.levels - 1) >> level & 1 else plane | above
        candidates.mask[word] = ~(above | clusters.hidden[block, word])


@jit(nogil=True, skip_refcounts=True, inline="always")
def count_codes(clusters: Clusters, block: Int) -> Int:
    """Return the number of codes of a block that may be found."""
    hidden = np.int64(0)
    for word in range(4):
        hidden += np.int64(popcount(clusters.hidden[block, word]))
    return BLOCK - hidden


@jit(nogil=True, skip_refcounts=True, inline="always")
def mark_distance(candidates: Candidates, word: Int, distance: Int) -> Any:
    """Return a mask of the codes of a word of the block that are at a distance."""
    equal = ~np.uint64(0)
    for level in range(candidates.levels):
        equal &= candidates.distances[level, word] ^ (np.uint64(distance >> level & 1) - np.uint64(1))
    return equal


@jit(nogil=True, skip_refcounts=True, inline="always")
def distance_at(candidates: Candidates, word: Int, bit: Int) -> Int:
    """Return the distance of one code of the block."""
    total = np.int64(0)
    for level in range(candidates.levels):
        total |= np.int64(candidates.distances[level, word] >> np.uint64(bit) & np.uint64(1)) << level
    return total
