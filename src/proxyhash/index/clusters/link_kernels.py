"""Union-find kernels: connected components of codes within a radius, without storing pairs."""

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.kernels import CHUNK, chunk_distances
from proxyhash.index.clusters.candidates import (
    Candidates,
    QueryBatch,
    can_contain,
    can_reach,
    centroid_distance,
    empty_candidates,
    empty_query_batch,
    find_candidates,
    load_query,
    lowest_bit,
)
from proxyhash.index.clusters.layout import Clusters
from proxyhash.index.clusters.layout_kernels import read_block
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.utils.jit import jit


@jit(nogil=True, skip_refcounts=True)
def _root(parent: Int64s, item: Int) -> Int:
    """Return the root of an item's component, halving the path to it."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = parent[item]
    return item


@jit(nogil=True)
def link_flat(words: Words, radius: Int, parent: Int64s, items: Int, until: Int) -> None:
    """Unite the codes `items` to `until` of `words` (W, N) with every later one within `radius`."""
    chunk = np.empty(CHUNK, np.uint64)
    for item in range(items, until):
        query = words[:, item].copy()
        for first in range(item + 1, words.shape[1], CHUNK):
            last = min(first + CHUNK, words.shape[1])
            chunk_distances(query, words, first, last, chunk)
            for other in range(first, last):
                if chunk[other - first] <= radius:
                    parent[_root(parent, other)] = _root(parent, item)


@jit(nogil=True)
def link_clustered(clusters: Clusters, radius: Int, parent: Int64s, blocks: Int, until: Int) -> None:
    """Unite the codes of blocks `blocks` to `until` with every later one within `radius`; `parent` is by slot (256 B,)."""
    parts = clusters.centroids.shape[1]
    square, words = np.empty((64, 4), np.uint64), np.empty((parts, BLOCK), np.uint64)
    batch, candidates = empty_query_batch(BLOCK, parts), empty_candidates(parts)
    for block in range(blocks, until):
        read_block(clusters, np.searchsorted(clusters.starts, block, side="right") - 1, block, square, words)
        queries = words.T.copy()
        for cluster in range(len(clusters.centroids)):
            if clusters.starts[cluster + 1] > block:
                loaded = _load_codes(clusters, cluster, block, queries, radius, batch)
                for other in range(max(block, clusters.starts[cluster]), clusters.starts[cluster + 1]):
                    _link_blocks(clusters, block, other, batch, loaded, radius, parent, candidates)


@jit(nogil=True, skip_refcounts=True)
def _load_codes(clusters: Clusters, cluster: Int, block: Int, queries: Words, radius: Int, batch: QueryBatch) -> Int:
    """Load those codes of a block (256, W) that a cluster can hold a neighbor of within `radius`; return their number."""
    loaded = 0
    for lane in range(BLOCK):
        hidden = clusters.hidden[block, lane // 64] >> np.uint64(lane % 64) & np.uint64(1)
        if not hidden and can_reach(
            clusters.spans, cluster, centroid_distance(queries, lane, clusters.centroids, cluster), radius
        ):
            load_query(batch, loaded, queries, lane, clusters, cluster)
            loaded += 1
    return loaded


@jit(nogil=True, skip_refcounts=True)
def _link_blocks(
    clusters: Clusters,
    block: Int,
    other: Int,
    batch: QueryBatch,
    loaded: Int,
    radius: Int,
    parent: Int64s,
    candidates: Candidates,
) -> None:
    """Unite the loaded codes of a block with all codes of another block within `radius`."""
    for row in range(loaded):
        reach = can_reach(clusters.shells, other, batch.to_centroid[row], radius)
        if reach and can_contain(clusters, other, batch, row, radius):
            find_candidates(clusters, other, batch, row, radius, candidates)
            for word in range(4):
                left = candidates.mask[word]
                while left:
                    slot = other * BLOCK + 64 * word + lowest_bit(left)
                    left &= left - np.uint64(1)
                    parent[_root(parent, slot)] = _root(parent, block * BLOCK + batch.query[row])
