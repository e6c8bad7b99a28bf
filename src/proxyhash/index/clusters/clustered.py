"""Clustered segments: a query compares only the codes of clusters and shells that can be near."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.search import parallel_over_queries
from proxyhash.index.clusters import layout_kernels, search_kernels
from proxyhash.index.clusters.centroids import MIN_CODES_FOR_CLUSTERS
from proxyhash.index.clusters.layout import NO_SPAN, Clusters
from proxyhash.index.clusters.segment import Feed, FlatSegment, Segment, Sink, in_ranges
from proxyhash.index.clusters.topk import empty_topk
from proxyhash.index.hits import Hits, rectangular_hits
from proxyhash.index.item_ids import Int64s, empty_item_ids, pack_item_ids
from proxyhash.index.refinement.distances import RefinedRows

_MAX_RESULTS = 4_000_000  # results that are gathered at a time, 16 bytes each


@dataclass(frozen=True, eq=False)
class ClusteredSegment(Segment):
    """`count` codes in `clusters`, and `tombstones`: the slots of removed ones."""

    clusters: Clusters
    count: int
    tombstones: int = 0

    def __len__(self) -> int:
        """Return the number of codes."""
        return self.count

    def nearest(
        self, queries: Words, k: int, threads: int | None = None, *, rows: RefinedRows | None = None
    ) -> tuple[Hits, int]:
        """Compare the blocks that can hold one of the k nearest codes; `rows` settle ties in distance."""
        k = min(k, len(self))
        ranks, slots = np.empty((len(queries), k), np.uint64), np.empty((len(queries), k), np.int64)
        compared = np.zeros(len(queries), np.int64)
        order = self._cache_order(queries)

        def search(part: slice) -> None:
            mine = queries[order[part]]
            refinement = None if rows is None else rows.take(order[part])
            top = empty_topk(len(mine), k, 64 * queries.shape[1], refinement)
            search_kernels.nearest(mine, self.clusters, top, compared[part])
            ranks[order[part]], slots[order[part]] = top.ranks, top.slots

        if k:
            parallel_over_queries(len(queries), threads, search, max_queries=max(1, _MAX_RESULTS // k))
        return rectangular_hits(ranks, slots, is_refined=rows is not None), int(compared.sum())

    def range_search(self, queries: Words, radius: int, threads: int | None = None) -> Hits:
        """Compare the blocks that can hold a code within the radius: once to count, once to write."""
        counts = np.zeros(len(queries), np.int64)
        nothing = np.empty(0, np.uint64), np.empty(0, np.int64)

        def count(rows: slice) -> None:
            search_kernels.range_search(queries[rows], self.clusters, radius, counts[rows], *nothing, False)

        parallel_over_queries(len(queries), threads, count)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ranks, slots = np.empty(offsets[-1], np.uint64), np.empty(offsets[-1], np.int64)

        def collect(rows: slice) -> None:
            search_kernels.range_search(queries[rows], self.clusters, radius, offsets[rows].copy(), ranks, slots, True)
            for row in range(rows.start, rows.stop):
                mine = slice(offsets[row], offsets[row + 1])
                order = np.argsort(ranks[mine])
                ranks[mine], slots[mine] = ranks[mine][order], slots[mine][order]

        parallel_over_queries(len(queries), threads, collect)
        return Hits(ranks, offsets, slots)

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        out = np.empty((len(slots), self.clusters.centroids.shape[1]), np.uint64)
        layout_kernels.read_codes(self.clusters, slots, out)
        return out

    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,), in the order of `slots`."""
        words = np.empty((self.clusters.centroids.shape[1], BLOCK * len(self.clusters.planes)), np.uint64)
        layout_kernels.read_all(self.clusters, words)
        return words[:, self.slots()], self.all_ids()

    def all_ids(self) -> Int64s:
        """Return the item ids of all codes (N,), in the order of `slots`."""
        return self.clusters.item_ids.at(self.slots())

    def slots(self) -> Int64s:
        """Return the slots that hold a code (N,)."""
        return np.flatnonzero(_unpack(self.clusters.planes[:, -1]) == 0)

    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (256 B,); -1 of an empty one."""
        is_empty = _unpack(self.clusters.planes[:, -1]) != 0
        return np.where(is_empty, -1, self.clusters.item_ids.at(slice(None)))

    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return a copy that marks the slots of these codes empty."""
        dropped = in_ranges(self.clusters.item_ids, low, high) & (_unpack(self.clusters.planes[:, -1]) == 0)
        count = int(np.count_nonzero(dropped))
        if not count:
            return self
        planes = self.clusters.planes.copy()
        planes[:, -1] |= np.packbits(dropped, bitorder="little").view("<u8").reshape(-1, 4)
        clusters = self.clusters._replace(planes=planes)
        return replace(self, clusters=clusters, count=self.count - count, tombstones=self.tombstones + count)

    def select(self, mask: NDArray[np.bool_]) -> "FlatSegment | ClusteredSegment":
        """Return some of the codes in the same clusters, or flat if they are few."""
        words, numbers = self.all_codes()
        kept = mask[numbers]
        words, numbers = np.ascontiguousarray(words[:, kept]), numbers[kept]
        if len(numbers) < MIN_CODES_FOR_CLUSTERS:
            order = np.argsort(numbers)
            return FlatSegment(np.ascontiguousarray(words[:, order]), pack_item_ids(numbers[order]))
        own = np.searchsorted(self.clusters.starts, self.slots()[kept] // BLOCK, side="right") - 1
        sizes = np.bincount(own, minlength=len(self.clusters.centroids))

        def feed(sink: Sink) -> None:
            sink(words, numbers.astype(np.uint32), own.astype(np.uint16))

        return build_clustered_segment(self.clusters.centroids, sizes, feed, 1 + int(numbers.max()))

    def _cache_order(self, queries: Words) -> Int64s:
        """Return an order (Q,) in which neighboring queries scan the same clusters, which then lie in the cache."""
        if len(queries) < 3:
            return np.arange(len(queries))
        nearest = np.empty(len(queries), np.uint16)
        layout_kernels.nearest_centroids(np.ascontiguousarray(queries.T), self.clusters.centroids, nearest)
        return np.argsort(nearest, kind="stable")


def _unpack(plane: Words) -> NDArray[np.uint8]:
    """Return one plane of every block (B, 4) as a byte for each slot (256 B,)."""
    return np.unpackbits(np.ascontiguousarray(plane).view(np.uint8).ravel(), bitorder="little")


def build_clustered_segment(
    centroids: Words, sizes: Int64s, feed: Feed, below: int = 2**32, threads: int | None = None
) -> ClusteredSegment:
    """Return codes sorted by cluster and shell; their item ids are below a number.

    `sizes` (C,) is the number of codes of each of `centroids` (C, W). Codes are written straight to their clusters, and
    these are sorted one by one: little memory is needed beyond the result.
    """
    clusters = _allocate(centroids, sizes, below)
    ends = BLOCK * clusters.starts[:-1]
    feed(lambda codes, numbers, own: layout_kernels.append_to_clusters(codes, numbers, own, clusters, ends))

    def sort(rows: slice) -> None:
        for cluster in range(rows.start, rows.stop):
            layout_kernels.sort_cluster(clusters, cluster, sizes[cluster])

    parallel_over_queries(len(centroids), threads, sort)
    return ClusteredSegment(clusters, int(sizes.sum()))


def _allocate(centroids: Words, sizes: Int64s, below: int) -> Clusters:
    """Return clusters with room for so many codes each."""
    starts = np.concatenate([[0], np.cumsum(-(-sizes // BLOCK))])
    planes = np.empty((starts[-1], 64 * centroids.shape[1] + 1, BLOCK // 64), np.uint64)
    spans, shells = np.full((len(centroids), 2), NO_SPAN, np.int16), np.empty((starts[-1], 2), np.int16)
    return Clusters(centroids, starts, spans, shells, planes, empty_item_ids(BLOCK * starts[-1], below))
