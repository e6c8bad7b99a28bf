"""Segments of a process that has just started: codes are compared with numpy, so that nothing is compiled or loaded."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.search import check_radii, sort_by_distance, use_numpy
from proxyhash.codes.slot_mask import SlotMask, unpack_bits
from proxyhash.codes.sources import slice_codes
from proxyhash.index.clusters.segment import Feed, FlatSegment, Segment, in_ranges
from proxyhash.index.hits import Hits, pack_ranks
from proxyhash.index.item_ids import ClusterIds, Int64s, ItemIds, UInt32s, empty_item_ids, pack_item_ids
from proxyhash.index.refinement.distances import RefinedRows


@dataclass(frozen=True, eq=False)
class WordSegment(Segment):
    """Codes `rows` (N, W) with ascending `item_ids` (N,)."""

    rows: Words
    item_ids: ItemIds

    def __len__(self) -> int:
        """Return N."""
        return len(self.rows)

    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        allowed: SlotMask | None = None,
        *,
        rows: RefinedRows | None = None,
    ) -> tuple[Hits, int]:
        """Sort all codes by distance, or search bit planes if that takes too long."""
        if rows is not None:
            return self._refined_nearest(queries, k, threads, allowed, rows)
        if not use_numpy(queries, self.rows):
            return self._flat.nearest(queries, k, threads, allowed)
        found = [(near[:k], slots[:k]) for near, slots in self._sorted(queries, allowed)]
        return self._hits(found), len(queries) * len(self)

    def range_search(
        self, queries: Words, radius: int | Int64s, threads: int | None = None, allowed: SlotMask | None = None
    ) -> Hits:
        """Sort all codes by distance, or search bit planes if that takes too long."""
        if not use_numpy(queries, self.rows):
            return self._flat.range_search(queries, radius, threads, allowed)
        pairs = zip(self._sorted(queries, allowed), check_radii(radius, len(queries)), strict=True)
        return self._hits([(near[near <= most], slots[near <= most]) for (near, slots), most in pairs])

    @cached_property
    def _flat(self) -> FlatSegment:
        """The same codes in the same slots as bit planes."""
        return FlatSegment(slice_codes(self.rows), self.item_ids)

    def _sorted(self, queries: Words, allowed: SlotMask | None) -> list[tuple[NDArray[np.int16], Int64s]]:
        """Return distances and slots of all allowed codes for each query, nearest first."""
        chosen = np.arange(len(self)) if allowed is None else np.flatnonzero(unpack_bits(allowed.words, len(self)))
        rows = self.rows if allowed is None else self.rows[chosen]
        found = (sort_by_distance(query, rows) for query in queries)
        return [(near, chosen[order]) for near, order in found]

    def _hits(self, found: list[tuple[NDArray[np.int16], Int64s]]) -> Hits:
        distances, slots = (np.concatenate([row[part] for row in found]) for part in (0, 1))
        offsets = np.concatenate([[0], np.cumsum([len(near) for near, _ in found])])
        return Hits(pack_ranks(distances, self.item_ids.at(slots)), offsets, slots)

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        return self.rows[slots]

    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,)."""
        return np.ascontiguousarray(self.rows.T), self.slot_ids()

    def slots(self) -> Int64s:
        """Return the slots that hold a code (N,): all of them."""
        return np.arange(len(self))

    @property
    def held(self) -> SlotMask:
        """Return which slots hold a code: all of them."""
        return SlotMask.of(np.ones(len(self), np.bool_))

    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (N,)."""
        return self.item_ids.at(slice(None))

    @property
    def num_slots(self) -> int:
        """Return N."""
        return len(self)

    @property
    def storage(self) -> Words:
        """Return the rows."""
        return self.rows

    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the codes that are in no range."""
        return self._keep(~in_ranges(self.item_ids, low, high))

    def select(self, mask: SlotMask) -> Self:
        """Return the codes in some slots."""
        return self._keep(unpack_bits(mask.words, len(self)))

    def take(self, slots: Int64s) -> Self:
        """Return some of the codes."""
        mask = np.zeros(self.num_slots, np.bool_)
        mask[slots] = True
        return self._keep(mask)

    def _keep(self, mask: NDArray[np.bool_]) -> Self:
        return self if mask.all() else replace(self, rows=self.rows[mask], item_ids=self.item_ids.select(mask))

    def append(self, words: Words, item_ids: UInt32s) -> "WordSegment":
        """Return a segment with more codes (W, n) of new item ids (n,)."""
        numbers: NDArray[Any] = np.concatenate([self.slot_ids(), item_ids])
        order = np.argsort(numbers)
        return WordSegment(np.concatenate([self.rows, words.T])[order], pack_item_ids(numbers[order]))


def build_word_segment(parts: int, count: int, feed: Feed, below: int = 2**32) -> WordSegment:
    """Return `count` codes of `parts` words in the order of the feed; their item ids are below a number."""
    rows, item_ids = np.empty((count, parts), np.uint64), empty_item_ids(count, below)
    end = 0

    def sink(codes: Words, numbers: UInt32s, _: ClusterIds) -> None:
        nonlocal end
        mine = slice(end, end + len(numbers))
        rows[mine], item_ids.low[mine], item_ids.high[mine] = codes.T, numbers & 0xFFFF, numbers >> 16
        end += len(numbers)

    feed(sink)
    return WordSegment(rows, item_ids)
