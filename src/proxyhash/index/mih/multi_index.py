"""Multi-index of a segment: nearest codes and range search by tables of substrings."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.search import parallel_over_queries
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.clusters.topk import empty_topk
from proxyhash.index.hits import Hits, merge_hits, spread_hits
from proxyhash.index.item_ids import Int64s, UInt32s
from proxyhash.index.mih import kernels
from proxyhash.index.mih.kernels import Allowed, Limits
from proxyhash.index.mih.partial_hits import NO_LIMIT, PartialHits
from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.index.mih.tables import Tables, build_tables

_MAX_RESULTS = 4_000_000  # results that are gathered at a time, 16 bytes each
_FIRST_ROOM = 64  # results of a query of a range search
_GROWTH = 16  # of the room of those that find more


@dataclass(frozen=True, eq=False)
class MultiIndex:
    """Tables of the codes of a segment of `bits` bits, and the slots (N,) of these codes; None: slots 0 to N - 1.

    `held` are the slots that hold a code, without those removed since the tables were built; None: all slots.
    """

    tables: Tables
    slots: UInt32s | None
    bits: int
    held: SlotMask | None = None

    def __len__(self) -> int:
        """Return N."""
        return len(self.tables.item_ids)

    @property
    def memory(self) -> int:
        """Return the bytes of all arrays."""
        return sum(array.nbytes for array in self.tables) + (0 if self.slots is None else self.slots.nbytes)

    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        *,
        allowed: SlotMask | None = None,
        max_radius: int | None = None,
        max_compared: int = NO_LIMIT,
    ) -> PartialHits:
        """Return the k nearest codes of each of `queries` (Q, W), nearest first, ties by item id.

        Only `allowed` slots are found. A query whose k-th code is farther than `max_radius`, or that compares more than
        `max_compared` codes, is given up.
        """
        kept = self._held(allowed)
        k = min(k, len(self) if kept is None else kept.count)
        last_step = self.bits if max_radius is None else max_radius
        hits, compared, reached = self._search(queries, k, self.bits, (last_step, max_compared), allowed, threads)
        is_complete = np.diff(hits.offsets) == k
        if k:
            is_complete[is_complete] = hits.distances[hits.offsets[1:][is_complete] - 1] <= reached[is_complete]
        return _drop_incomplete(hits, compared, is_complete)

    def range_search(
        self,
        queries: Words,
        radius: int,
        threads: int | None = None,
        *,
        allowed: SlotMask | None = None,
        max_compared: int = NO_LIMIT,
    ) -> PartialHits:
        """Return all codes within a radius of each of `queries` (Q, W); a query is given up as in `nearest`.

        The queries that find more codes than there is room for are searched again with more room.
        """
        parts, compared = [], np.zeros(len(queries), np.int64)
        is_complete = np.zeros(len(queries), np.bool_)
        left, room = np.arange(len(queries)), min(_FIRST_ROOM, len(self))
        while len(left):
            found, count, _ = self._search(queries[left], room, radius, (radius, max_compared), allowed, threads)
            is_full = (np.diff(found.offsets) == room) & (room < len(self))
            compared[left] = count  # the same codes again, if there was no room
            is_complete[left] = (count <= max_compared) & ~is_full
            parts.append(spread_hits(_drop_incomplete(found, count, is_complete[left]).hits, left, len(queries)))
            left, room = left[is_full & (count <= max_compared)], min(_GROWTH * room, len(self))
        return PartialHits(merge_hits(parts, len(queries)), compared, is_complete)

    def _search(
        self, queries: Words, k: int, radius: int, limits: tuple[int, int], allowed: SlotMask | None, threads: int | None
    ) -> tuple[Hits, Int64s, Int64s]:
        """Return the k nearest codes within a radius, and arrays (Q,): codes compared, and the radius that was reached.

        `limits` are the last step and the number of codes to compare.
        """
        compared, reached, counts = np.zeros((3, len(queries)), np.int64)
        kept = self._held(allowed)
        no_words, no_slots = np.empty(0, np.uint64), np.empty(0, np.uint32)
        mask = Allowed(no_words if kept is None else kept.words, no_slots if self.slots is None else self.slots)
        parts: dict[int, tuple[Words, Int64s]] = {}

        def search(rows: slice) -> None:
            top = empty_topk(rows.stop - rows.start, k, radius)
            kernels.search(queries[rows], self.tables, mask, Limits(*limits), top, compared[rows], reached[rows])
            is_held = np.arange(k) < top.counts[:, None]
            parts[rows.start], counts[rows] = (top.ranks[is_held], top.slots[is_held]), top.counts

        if k:
            parallel_over_queries(len(queries), threads, search, max_queries=max(1, _MAX_RESULTS // k))
        ordered = [parts[start] for start in sorted(parts)] or [(np.empty(0, np.uint64), np.empty(0, np.int64))]
        ranks, positions = (np.concatenate(arrays) for arrays in zip(*ordered, strict=True))
        slots: Int64s = positions if self.slots is None else self.slots[positions].astype(np.int64)
        return Hits(ranks, np.concatenate([[0], np.cumsum(counts)]), slots), compared, reached

    def keep(self, segment: Segment) -> "MultiIndex | None":
        """Return the multi-index for a segment with fewer codes in the same slots; None if it has codes that it lacks."""
        held = segment.held
        known = held.at(np.arange(len(self)) if self.slots is None else self.slots)
        return replace(self, held=held) if np.count_nonzero(known) == len(segment) else None

    def _held(self, allowed: SlotMask | None) -> SlotMask | None:
        """Return the allowed slots whose codes were not removed; None: all slots."""
        if allowed is None or self.held is None:
            return self.held if allowed is None else allowed
        return allowed & self.held


def build_multi_index(segment: Segment, bits: int, threads: int | None = None) -> MultiIndex:
    """Return the multi-index of all codes of a segment."""
    words, item_ids = segment.all_codes()
    slots = segment.slots().astype(np.uint32)
    tables = build_tables(words, item_ids, bits, choose_substrings(bits, len(item_ids)), threads)
    if len(slots) == segment.num_slots:  # every slot holds a code
        return MultiIndex(tables, None, bits)
    return MultiIndex(tables, slots, bits, segment.held)


def _drop_incomplete(hits: Hits, compared: Int64s, is_complete: NDArray[np.bool_]) -> PartialHits:
    """Return only the hits of complete queries."""
    if not is_complete.all():
        hits = hits.take(np.flatnonzero(is_complete[hits.queries]))
    return PartialHits(hits, compared, is_complete)
