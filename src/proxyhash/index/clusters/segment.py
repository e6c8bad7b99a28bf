"""Segments: immutable codes in memory, ready to be searched. A flat segment compares every code with the query."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import scan
from proxyhash.codes.bits import Packed, Words
from proxyhash.codes.search import check_radii
from proxyhash.codes.slot_mask import SlotMask, unpack_bits
from proxyhash.codes.sources import SlicedCodes, SlicedCodesBuilder, pack_slots, slice_codes
from proxyhash.index.hits import Hits, pack_ranks, rectangular_hits
from proxyhash.index.item_ids import ClusterIds, Int64s, ItemIds, UInt32s, empty_item_ids, pack_item_ids
from proxyhash.index.plans import Plan
from proxyhash.index.refinement.distances import RefinedRows
from proxyhash.index.refinement.ties import refine_ties


class Segment(ABC):
    """N codes of W words and their item ids, in slots of which some may be empty. It never changes."""

    plan: ClassVar[Plan] = "scan"
    """how it is searched"""
    tombstones: int = 0
    """slots of removed codes, which still take memory"""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @abstractmethod
    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        allowed: SlotMask | None = None,
        *,
        rows: RefinedRows | None = None,
    ) -> tuple[Hits, int]:
        """Return the k nearest codes of each of `queries` (Q, W), and how many codes were compared.

        Ties are ordered by the refinement distances of `rows`, if they are given, then by item id.
        """

    def _refined_nearest(
        self, queries: Words, k: int, threads: int | None, allowed: SlotMask | None, rows: RefinedRows
    ) -> tuple[Hits, int]:
        """Return what `nearest` does with rows, by a further search for codes that tie with the k-th."""
        found, compared = self.nearest(queries, k + 1, threads, allowed)
        within = lambda some, radius: self.range_search(some, radius, threads, allowed)  # noqa: E731
        return refine_ties(found, queries, k, rows, len(self), within), compared

    @abstractmethod
    def range_search(
        self, queries: Words, radius: int | Int64s, threads: int | None = None, allowed: SlotMask | None = None
    ) -> Hits:
        """Return all codes within a radius, or one for each query, of each of `queries` (Q, W), nearest first."""

    @abstractmethod
    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""

    @abstractmethod
    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,)."""

    def all_ids(self) -> Int64s:
        """Return the item ids of all codes (N,), in the order of `all_codes`."""
        ids = self.slot_ids()
        return ids[ids >= 0]

    def slots(self) -> Int64s:
        """Return the slots that hold a code (N,), ascending: the order of `all_codes`."""
        return self.held.slots()

    @property
    @abstractmethod
    def held(self) -> SlotMask:
        """Return which slots hold a code."""

    @abstractmethod
    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (num_slots,); -1 of an empty one."""

    @property
    @abstractmethod
    def num_slots(self) -> int:
        """Return the number of slots."""

    @property
    @abstractmethod
    def storage(self) -> Words:
        """Return the array that holds the codes; segments that differ only in the codes removed share it, and the slots."""

    @abstractmethod
    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the segment without the item ids of ascending ranges, low to high inclusive."""

    def select(self, mask: SlotMask) -> "Segment":
        """Return a compact segment with only the codes in some slots."""
        return self.take(mask.slots())

    @abstractmethod
    def take(self, slots: Int64s) -> "Segment":
        """Return a compact segment with only the codes in some slots (n,), given ascending; empty slots are left out."""


@dataclass(frozen=True, eq=False)
class FlatSegment(Segment):
    """Codes as bit planes, in slots with ascending `item_ids`, so that a scan settles ties by id."""

    sliced: SlicedCodes
    item_ids: ItemIds
    tombstones: int = 0

    def __len__(self) -> int:
        """Return N."""
        return self.sliced.num_valid

    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        allowed: SlotMask | None = None,
        *,
        rows: RefinedRows | None = None,
    ) -> tuple[Hits, int]:
        """Compare every code."""
        if rows is not None:
            return self._refined_nearest(queries, k, threads, allowed, rows)
        distances, slots = scan.nearest(self._source(allowed), self._packed(queries), k, threads)
        ranks = pack_ranks(distances, self.item_ids.at(slots))
        return rectangular_hits(ranks, slots), len(queries) * len(self)

    def range_search(
        self, queries: Words, radius: int | Int64s, threads: int | None = None, allowed: SlotMask | None = None
    ) -> Hits:
        """Compare every code."""
        radii = check_radii(radius, len(queries))
        starts, distances, slots = scan.collect(self._source(allowed), self._packed(queries), radii, threads)
        return Hits(pack_ranks(distances, self.item_ids.at(slots)), starts, slots)

    def _source(self, allowed: SlotMask | None) -> SlicedCodes:
        return self.sliced if allowed is None else self.sliced.only(allowed)

    def _packed(self, queries: Words) -> Packed:
        """Return queries (Q, W) with as many bytes as the planes have bits."""
        return np.ascontiguousarray(queries, "<u8").view(np.uint8)[:, : self.sliced.bits // 8]

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        return self.sliced.codes(slots)

    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,)."""
        slots = self.slots()
        return self.sliced.all_codes()[:, slots], self.item_ids.at(slots)

    @property
    def held(self) -> SlotMask:
        """Return which slots hold a code."""
        return SlotMask(self.sliced.valid.ravel()[: -(-self.num_slots // 64)])

    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (num_slots,); -1 of an empty one."""
        held = unpack_bits(self.sliced.valid, self.num_slots)
        return np.where(held, self.item_ids.at(slice(None)), -1)

    @property
    def num_slots(self) -> int:
        """Return the number of slots."""
        return len(self.item_ids.low)

    @property
    def storage(self) -> Words:
        """Return the planes."""
        return self.sliced.planes

    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the segment with the slots of these codes marked empty."""
        kept = np.zeros(self.sliced.num_slots, np.bool_)
        kept[: self.num_slots] = ~in_ranges(self.item_ids, low, high)
        sliced = SlicedCodes(self.sliced.planes, self.sliced.valid & pack_slots(kept))
        dropped = len(self) - sliced.num_valid
        return replace(self, sliced=sliced, tombstones=self.tombstones + dropped) if dropped else self

    def take(self, slots: Int64s) -> "FlatSegment":
        """Return some of the codes."""
        chosen = slots[self.held.at(slots)] if self.tombstones else slots
        sliced = slice_codes(self.codes(chosen), self.sliced.bits)
        return FlatSegment(sliced, self.item_ids.take(chosen))

    def append(self, words: Words, item_ids: UInt32s) -> "FlatSegment":
        """Return a segment with more codes (W, n) of new item ids (n,)."""
        old_words, old_ids = self.all_codes()
        return flat_segment(
            np.concatenate([old_words, words], axis=1), np.concatenate([old_ids, item_ids]), self.sliced.bits
        )


def flat_segment(words: Words, item_ids: NDArray[np.integer], bits: int) -> FlatSegment:
    """Return codes (W, N) of `bits` bits, a multiple of 8, with item ids (N,) in any order."""
    order = np.argsort(item_ids)
    rows = np.ascontiguousarray(words[:, order].T)
    return FlatSegment(slice_codes(rows, bits), pack_item_ids(item_ids[order]))


def in_ranges(item_ids: ItemIds, low: Int64s, high: Int64s) -> NDArray[np.bool_]:
    """Return which item ids (N,) are in one of several ascending ranges, low to high inclusive."""
    numbers = item_ids.at(slice(None))
    ends = np.concatenate([[-1], high])  # ids before the first range are in none
    return numbers <= ends[np.searchsorted(low, numbers, side="right")]


Sink = Callable[[Words, UInt32s, ClusterIds], None]
Feed = Callable[[Sink], None]
"""Calls a sink with every batch of codes (W, n), item ids (n,) and cluster ids (n,), in the order of item ids."""


def build_flat_segment(bits: int, count: int, feed: Feed, below: int = 2**32) -> FlatSegment:
    """Return `count` codes of `bits` bits, a multiple of 8, in the order of the feed; their item ids are below a number."""
    builder, item_ids = SlicedCodesBuilder(count, bits), empty_item_ids(count, below)
    end = 0

    def sink(codes: Words, numbers: UInt32s, _: ClusterIds) -> None:
        nonlocal end
        mine = slice(end, end + len(numbers))
        builder.append(codes)
        item_ids.low[mine], item_ids.high[mine] = numbers & 0xFFFF, numbers >> 16
        end += len(numbers)

    feed(sink)
    return FlatSegment(builder.build(), item_ids)
