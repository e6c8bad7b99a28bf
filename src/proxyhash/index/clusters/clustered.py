"""Clustered segments: a query compares only the codes of clusters and shells that can be near."""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from proxyhash.codes.bits import Words, empty_words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.search import check_radii, parallel_over_queries
from proxyhash.codes.slot_mask import SlotMask, pack_bits, unpack_bits
from proxyhash.index.clusters import layout_kernels, search_kernels
from proxyhash.index.clusters.centroids import MIN_CODES_FOR_CLUSTERS
from proxyhash.index.clusters.layout import NO_SPAN, Clusters
from proxyhash.index.clusters.segment import Feed, FlatSegment, Segment, Sink, flat_segment, in_ranges
from proxyhash.index.clusters.topk import empty_topk
from proxyhash.index.hits import Hits, SearchStats, rectangular_hits
from proxyhash.index.item_ids import Int64s, empty_item_ids
from proxyhash.index.plans import Plan
from proxyhash.index.refinement.distances import RefinedRows
from proxyhash.utils.parallel import over_slices

_CODES_PER_SLICE = 1 << 14  # that a thread reads at a time
_MAX_RESULTS = 4_000_000  # results that are gathered at a time, 16 bytes each


@dataclass(frozen=True, eq=False)
class ClusteredSegment(Segment):
    """`count` codes in `clusters`, and `tombstones`: the slots of removed ones."""

    plan: ClassVar[Plan] = "clusters"
    clusters: Clusters
    count: int
    tombstones: int = 0

    def __len__(self) -> int:
        """Return the number of codes."""
        return self.count

    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        allowed: SlotMask | None = None,
        *,
        rows: RefinedRows | None = None,
    ) -> tuple[Hits, int]:
        """Compare the blocks that can hold one of the k nearest codes; `rows` settle ties in distance."""
        clusters = self._only(allowed)
        k = min(
            k, len(self) if allowed is None else BLOCK * len(clusters.hidden) - int(np.bitwise_count(clusters.hidden).sum())
        )
        ranks, slots = np.empty((len(queries), k), np.uint64), np.empty((len(queries), k), np.int64)
        compared = np.zeros(len(queries), np.int64)
        order = self._cache_order(queries)

        def search(part: slice) -> None:
            mine = queries[order[part]]
            refinement = None if rows is None else rows.take(order[part])
            top = empty_topk(len(mine), k, 64 * queries.shape[1], refinement)
            search_kernels.nearest(mine, clusters, top, compared[part])
            ranks[order[part]], slots[order[part]] = top.ranks, top.slots

        if k:
            parallel_over_queries(len(queries), threads, search, max_queries=max(1, _MAX_RESULTS // k))
        return rectangular_hits(ranks, slots, is_refined=rows is not None), int(compared.sum())

    def _only(self, allowed: SlotMask | None) -> Clusters:
        """Return the clusters, of which only allowed slots are found."""
        if allowed is None:
            return self.clusters
        return self.clusters._replace(hidden=self.clusters.hidden | ~allowed.blocks(*self.clusters.hidden.shape))

    def range_search(
        self, queries: Words, radius: int | Int64s, threads: int | None = None, allowed: SlotMask | None = None
    ) -> Hits:
        """Compare the blocks that can hold a code within the radius: once to count, once to write."""
        radii, clusters = check_radii(radius, len(queries)), self._only(allowed)
        counts, compared = np.zeros((2, len(queries)), np.int64)
        nothing = np.empty(0, np.uint64), np.empty(0, np.int64)

        def count(rows: slice) -> None:
            found = counts[rows], *nothing, compared[rows]
            search_kernels.range_search(queries[rows], clusters, radii[rows], *found, False)

        parallel_over_queries(len(queries), threads, count)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ranks, slots = np.empty(offsets[-1], np.uint64), np.empty(offsets[-1], np.int64)

        def collect(rows: slice) -> None:
            found = offsets[rows].copy(), ranks, slots, compared[rows]
            search_kernels.range_search(queries[rows], clusters, radii[rows], *found, True)
            for row in range(rows.start, rows.stop):
                mine = slice(offsets[row], offsets[row + 1])
                order = np.argsort(ranks[mine])
                ranks[mine], slots[mine] = ranks[mine][order], slots[mine][order]

        parallel_over_queries(len(queries), threads, collect)
        return Hits(ranks, offsets, slots, stats=SearchStats(("clusters",) * len(queries), compared))

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        out = np.empty((len(slots), self.clusters.centroids.shape[1]), np.uint64)
        read = layout_kernels.read_codes
        over_slices(len(slots), _CODES_PER_SLICE, lambda rows: read(self.clusters, slots[rows], out[rows]))
        return out

    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,), in the order of `slots`."""
        words = np.empty((self.clusters.centroids.shape[1], BLOCK * len(self.clusters.planes)), np.uint64)
        layout_kernels.read_all(self.clusters, words)
        return words[:, self.slots()], self.all_ids()

    @property
    def held(self) -> SlotMask:
        """Return which slots hold a code."""
        return SlotMask(~self.clusters.hidden.ravel())

    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (256 B,); -1 of an empty one."""
        return np.where(unpack_bits(self.held.words, self.num_slots), self.clusters.item_ids.at(slice(None)), -1)

    @property
    def num_slots(self) -> int:
        """Return the number of slots."""
        return BLOCK * len(self.clusters.planes)

    @property
    def storage(self) -> Words:
        """Return the planes."""
        return self.clusters.planes

    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the segment with the slots of these codes hidden."""
        dropped = in_ranges(self.clusters.item_ids, low, high) & unpack_bits(self.held.words, self.num_slots)
        count = int(np.count_nonzero(dropped))
        if not count:
            return self
        hidden = self.clusters.hidden | pack_bits(dropped, self.num_slots // 64).reshape(-1, BLOCK // 64)
        clusters = self.clusters._replace(hidden=hidden)
        return replace(self, clusters=clusters, count=self.count - count, tombstones=self.tombstones + count)

    def take(self, slots: Int64s) -> "FlatSegment | ClusteredSegment":
        """Return some of the codes in the same clusters, or flat if they are few."""
        slots = slots[self.held.at(slots)]
        words, numbers = np.ascontiguousarray(self.codes(slots).T), self.clusters.item_ids.at(slots)
        if len(numbers) < MIN_CODES_FOR_CLUSTERS:
            return flat_segment(words, numbers, 64 * len(words))
        own = np.searchsorted(self.clusters.starts, slots // BLOCK, side="right") - 1
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
    planes = empty_words((int(starts[-1]), 64 * centroids.shape[1] + 1, BLOCK // 64))
    spans, shells = np.full((len(centroids), 2), NO_SPAN, np.int16), np.empty((starts[-1], 2), np.int16)
    hidden = np.zeros((starts[-1], BLOCK // 64), np.uint64)
    return Clusters(centroids, starts, spans, shells, planes, hidden, empty_item_ids(BLOCK * starts[-1], below))
