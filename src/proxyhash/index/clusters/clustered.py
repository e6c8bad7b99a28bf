"""Codes in memory, grouped around centres: a query looks only at those that can be near."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.codes.search import parallel_over_queries
from proxyhash.index.clusters import layout_kernels, search_kernels
from proxyhash.index.clusters.layout import NO_SPAN, Groups
from proxyhash.index.clusters.segment import Fill, Found, Segment, in_ranges
from proxyhash.index.clusters.topk import none_held
from proxyhash.index.item_ids import Longs, no_positions

_HELD_AT_ONCE = 4_000_000  # results that are gathered at a time, 16 bytes each


@dataclass(frozen=True, eq=False)
class GroupedSegment(Segment):
    """Grouped codes: `held` so many, and `lost` so many places where others were."""

    groups: Groups
    held: int
    lost: int = 0

    def __len__(self) -> int:
        """Return how many codes there are."""
        return self.held

    def nearest(self, queries: Words, k: int, threads: int | None = None) -> tuple[Found, int]:
        """Look at blocks that can hold one of the k nearest."""
        k = min(k, len(self))
        keys, places = np.empty((len(queries), k), np.uint64), np.empty((len(queries), k), np.int64)
        looked = np.zeros(len(queries), np.int64)
        order = self._order(queries)

        def search(rows: slice) -> None:
            mine = queries[order[rows]]
            best = none_held(len(mine), k, 64 * queries.shape[1])
            search_kernels.nearest(mine, self.groups, best, looked[rows])
            keys[order[rows]], places[order[rows]] = best.keys, best.places

        if k:
            parallel_over_queries(len(queries), threads, search, max_queries=max(1, _HELD_AT_ONCE // k))
        return Found(keys, places), int(looked.sum())

    def within(self, queries: Words, radius: int, threads: int | None = None) -> tuple[Longs, Found]:
        """Look at blocks that can hold a code within the radius: first to count, then to write."""
        counts = np.zeros(len(queries), np.int64)
        nowhere = np.empty(0, np.uint64), np.empty(0, np.int64)

        def count(rows: slice) -> None:
            search_kernels.within(queries[rows], self.groups, radius, counts[rows], *nowhere, False)

        parallel_over_queries(len(queries), threads, count)
        starts = np.concatenate([[0], np.cumsum(counts)])
        keys, places = np.empty(starts[-1], np.uint64), np.empty(starts[-1], np.int64)

        def collect(rows: slice) -> None:
            search_kernels.within(queries[rows], self.groups, radius, starts[rows].copy(), keys, places, True)
            for row in range(rows.start, rows.stop):
                mine = slice(starts[row], starts[row + 1])
                order = np.argsort(keys[mine])
                keys[mine], places[mine] = keys[mine][order], places[mine][order]

        parallel_over_queries(len(queries), threads, collect)
        return starts, Found(keys, places)

    def codes(self, places: Longs) -> Words:
        """Return the codes (n, W) that lie at some places."""
        out = np.empty((len(places), self.groups.centres.shape[1]), np.uint64)
        layout_kernels.read_codes(self.groups, places, out)
        return out

    def everything(self) -> tuple[Words, Longs]:
        """Return all codes (W, N) and their positions (N,), in the order in which they lie."""
        words = np.empty((self.groups.centres.shape[1], BLOCK * len(self.groups.planes)), np.uint64)
        layout_kernels.read_all(self.groups, words)
        held = self.places()
        return words[:, held], self.groups.positions.at(held)

    def places(self) -> Longs:
        """Return where codes lie (N,)."""
        return np.flatnonzero(_bits(self.groups.planes[:, -1]) == 0)

    def without(self, low: Longs, high: Longs) -> Self:
        """Return a copy that marks the places of these codes empty."""
        gone = in_ranges(self.groups.positions, low, high) & (_bits(self.groups.planes[:, -1]) == 0)
        count = int(np.count_nonzero(gone))
        if not count:
            return self
        planes = self.groups.planes.copy()
        planes[:, -1] |= np.packbits(gone, bitorder="little").view("<u8").reshape(-1, 4)
        return replace(self, groups=self.groups._replace(planes=planes), held=self.held - count, lost=self.lost + count)

    def _order(self, queries: Words) -> Longs:
        """Return an order in which neighboring queries look at the same groups, which then lie in the cache."""
        if len(queries) < 3:
            return np.arange(len(queries))
        nearest = np.empty(len(queries), np.uint16)
        layout_kernels.nearest_centres(np.ascontiguousarray(queries.T), self.groups.centres, nearest)
        return np.argsort(nearest, kind="stable")


def _bits(marks: Words) -> NDArray[np.uint8]:
    """Return planes (B, 4) as a byte for each place (256 B,)."""
    return np.unpackbits(np.ascontiguousarray(marks).view(np.uint8).ravel(), bitorder="little")


def grouped_segment(
    centres: Words, sizes: Longs, fill: Fill, below: int = 2**32, threads: int | None = None
) -> GroupedSegment:
    """Return codes ordered by group and shell, with positions below a number.

    `sizes` (C,) says how many fall to each of `centres` (C, W). Codes go straight to their group, and groups are put in
    order one by one: little memory is needed beyond the result.
    """
    groups = _room(centres, sizes, below)
    ends = BLOCK * groups.starts[:-1]
    fill(lambda codes, numbers, own: layout_kernels.place_in_groups(codes, numbers, own, groups, ends))

    def order(rows: slice) -> None:
        for group in range(rows.start, rows.stop):
            layout_kernels.order_group(groups, group, sizes[group])

    parallel_over_queries(len(centres), threads, order)
    return GroupedSegment(groups, int(sizes.sum()))


def _room(centres: Words, sizes: Longs, below: int) -> Groups:
    """Return groups of so many codes each that are still to come."""
    starts = np.concatenate([[0], np.cumsum(-(-sizes // BLOCK))])
    planes = np.empty((starts[-1], 64 * centres.shape[1] + 1, BLOCK // 64), np.uint64)
    spans, shells = np.full((len(centres), 2), NO_SPAN, np.int16), np.empty((starts[-1], 2), np.int16)
    return Groups(centres, starts, spans, shells, planes, no_positions(BLOCK * starts[-1], below))
