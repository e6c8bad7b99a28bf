"""Search kernels over clustered codes that skip blocks by the triangle inequality; see `layout`."""

from typing import Any

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.index.clusters.candidates import (
    Candidates,
    QueryBatch,
    can_contain,
    can_reach,
    centroid_distance,
    count_codes,
    distance_at,
    empty_candidates,
    empty_query_batch,
    find_candidates,
    load_query,
    lowest_bit,
    mark_distance,
)
from proxyhash.index.clusters.layout import Clusters
from proxyhash.index.clusters.topk import TopK, kth_refinement, pack_rank, push, refine_rank, sort_topk
from proxyhash.index.item_ids import Int, Int64s, item_id_at
from proxyhash.index.refinement.distances import compare_rows, most_compared, refinement_distance
from proxyhash.utils.jit import jit

TILE = 8  # blocks that one query tests before the next query's turn: they stay in the L1 cache


@jit(nogil=True)
def nearest(queries: Words, clusters: Clusters, top: TopK, compared: Int64s) -> None:
    """Find the k nearest of each of `queries` (Q, W), k <= N, nearest first; `compared` (Q,) counts the codes tested.

    Each query first scans the nearest clusters until it holds k codes, which gives a small k-th distance. Then all queries
    that a cluster can still improve scan it together.
    """
    batch, candidates = empty_query_batch(len(queries), queries.shape[1]), empty_candidates(queries.shape[1])
    last_rank = _scan_nearest_clusters(queries, clusters, batch, top, compared, candidates)
    _scan_other_clusters(queries, clusters, last_rank, batch, top, compared, candidates)
    sort_topk(top)


@jit(nogil=True)
def _scan_nearest_clusters(
    queries: Words, clusters: Clusters, batch: QueryBatch, top: TopK, compared: Int64s, candidates: Candidates
) -> Int64s:
    """Scan the nearest clusters of each query until it holds k codes; return the rank of the last cluster (Q,)."""
    last_rank = np.full(len(queries), -1, np.int64)
    for q in range(len(queries)):
        while top.counts[q] < top.ranks.shape[1]:
            last_rank[q] = _next_cluster_rank(queries, q, clusters.centroids, last_rank[q])
            load_query(batch, 0, queries, q, clusters, last_rank[q] & 0xFFFF)
            _scan_cluster(clusters, last_rank[q] & 0xFFFF, batch, 1, top, compared, candidates)
    return last_rank


@jit(nogil=True, skip_refcounts=True, inline="always")
def _cluster_rank(to_centroid: Int, cluster: Int) -> Int:
    """Return a cluster's rank for a query: the distance of its centroid, then its id."""
    return (np.int64(to_centroid) << 16) + cluster


@jit(nogil=True, skip_refcounts=True)
def _next_cluster_rank(queries: Words, q: Int, centroids: Words, after: Int) -> Int:
    """Return the lowest cluster rank of a query above `after`."""
    least: Int = np.int64(2**60)
    for cluster in range(len(centroids)):
        rank = _cluster_rank(centroid_distance(queries, q, centroids, cluster), cluster)
        if after < rank < least:
            least = rank
    return least


@jit(nogil=True, skip_refcounts=True)
def _scan_other_clusters(
    queries: Words,
    clusters: Clusters,
    last_rank: Int64s,
    batch: QueryBatch,
    top: TopK,
    compared: Int64s,
    candidates: Candidates,
) -> None:
    """Scan for all queries the clusters that they have not scanned: those of a higher rank."""
    for cluster in range(len(clusters.centroids)):
        loaded = 0
        for q in range(len(queries)):
            to_centroid = centroid_distance(queries, q, clusters.centroids, cluster)
            if (
                can_reach(clusters.spans, cluster, to_centroid, top.limit[q])
                and _cluster_rank(to_centroid, cluster) > last_rank[q]
            ):
                load_query(batch, loaded, queries, q, clusters, cluster)
                loaded += 1
        _scan_cluster(clusters, cluster, batch, loaded, top, compared, candidates)


@jit(nogil=True, skip_refcounts=True)
def _scan_cluster(
    clusters: Clusters, cluster: Int, batch: QueryBatch, loaded: Int, top: TopK, compared: Int64s, candidates: Candidates
) -> None:
    """Test the loaded queries against those blocks of a cluster that can hold one of their k nearest codes.

    A shell is skipped only if its bound is strictly above the k-th distance: at an equal distance, a lower id wins.
    """
    last = clusters.starts[cluster + 1]
    for begin in range(clusters.starts[cluster], last, TILE):
        end = min(begin + TILE, last)
        low, high = clusters.shells[begin, 0], clusters.shells[end - 1, 1]
        for row in range(loaded):
            q, to_centroid = batch.query[row], batch.to_centroid[row]
            if low - to_centroid <= top.limit[q] and to_centroid - high <= top.limit[q]:
                for block in range(begin, end):
                    if can_reach(clusters.shells, block, to_centroid, top.limit[q]):
                        compared[q] += count_codes(clusters, block)
                        if can_contain(clusters, block, batch, row, top.limit[q]):
                            find_candidates(clusters, block, batch, row, top.limit[q], candidates)
                            _push_candidates(clusters, block, candidates, top, q)


@jit(nogil=True, skip_refcounts=True)
def _push_candidates(clusters: Clusters, block: Int, candidates: Candidates, top: TopK, q: Int) -> None:
    """Push the candidates of a block to the heap of query q."""
    is_refined = len(top.rows.known) > 0
    for word in range(4):
        left = candidates.mask[word]
        if left and is_refined and top.counts[q] == top.ranks.shape[1]:
            left ^= _far_ties(left & mark_distance(candidates, word, top.limit[q]), block * BLOCK + 64 * word, top, q)
        while left:
            bit = lowest_bit(left)
            left &= left - np.uint64(1)
            distance, slot = distance_at(candidates, word, bit), block * BLOCK + 64 * word + bit
            if distance <= top.limit[q]:
                rank = pack_rank(distance, item_id_at(clusters.item_ids, slot))
                if is_refined:
                    rank = refine_rank(rank, refinement_distance(top.rows, q, slot))
                push(top, q, rank, slot)


@jit(nogil=True, skip_refcounts=True)
def _far_ties(ties: np.uint64, first: Int, top: TopK, q: Int) -> Any:
    """Return which of the slots from `first` on that tie with the k-th code of query q have a larger refinement distance.

    Only their rows are compared, which takes a fraction of the time of a push. Slots without a row may be left out.
    """
    most, left, far = most_compared(top.rows, kth_refinement(top, q)), ties, np.uint64(0)
    while left:
        bit = lowest_bit(left)
        left &= left - np.uint64(1)
        far |= np.uint64(compare_rows(top.rows, q, first + bit) > most) << np.uint64(bit)
    return far


@jit(nogil=True)
def range_search(
    queries: Words,
    clusters: Clusters,
    radii: Int64s,
    ends: Int64s,
    ranks: Words,
    slots: Int64s,
    compared: Int64s,
    write: bool,
) -> None:
    """Advance `ends` (Q,) by the number of codes within the radius (Q,) of each query; if `write`, store ranks and slots.

    Otherwise, add the number of codes tested to `compared` (Q,).
    """
    batch, candidates = empty_query_batch(len(queries), queries.shape[1]), empty_candidates(queries.shape[1])
    for cluster in range(len(clusters.centroids)):
        loaded = 0
        for q in range(len(queries)):
            if can_reach(clusters.spans, cluster, centroid_distance(queries, q, clusters.centroids, cluster), radii[q]):
                load_query(batch, loaded, queries, q, clusters, cluster)
                loaded += 1
        for block in range(clusters.starts[cluster], clusters.starts[cluster + 1]):
            for row in range(loaded):
                q = batch.query[row]
                if can_reach(clusters.shells, block, batch.to_centroid[row], radii[q]):
                    if not write:
                        compared[q] += count_codes(clusters, block)
                    if can_contain(clusters, block, batch, row, radii[q]):
                        find_candidates(clusters, block, batch, row, radii[q], candidates)
                        _collect(clusters, block, candidates, q, ends, ranks, slots, write)


@jit(nogil=True, skip_refcounts=True)
def _collect(
    clusters: Clusters, block: Int, candidates: Candidates, q: Int, ends: Int64s, ranks: Words, slots: Int64s, write: bool
) -> None:
    """Advance `ends[q]` by the candidates of a block."""
    for word in range(4):
        left = candidates.mask[word]
        while left:
            bit = lowest_bit(left)
            left &= left - np.uint64(1)
            if write:
                slot = block * BLOCK + 64 * word + bit
                ranks[ends[q]] = pack_rank(distance_at(candidates, word, bit), item_id_at(clusters.item_ids, slot))
                slots[ends[q]] = slot
            ends[q] += 1
