"""Segments: immutable codes in memory, ready to be searched. A flat segment compares every code with the query."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.search import range_search_words, top_k_words
from proxyhash.index.hits import Hits, pack_ranks, rectangular_hits
from proxyhash.index.item_ids import ClusterIds, Int64s, ItemIds, UInt32s, empty_item_ids, pack_item_ids
from proxyhash.index.refinement.distances import RefinedRows
from proxyhash.index.refinement.ties import refined_nearest


class Segment(ABC):
    """N codes of W words and their item ids. It never changes."""

    tombstones: int = 0
    """slots of removed codes, which still take memory"""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @abstractmethod
    def nearest(
        self, queries: Words, k: int, threads: int | None = None, *, rows: RefinedRows | None = None
    ) -> tuple[Hits, int]:
        """Return the k nearest codes of each of `queries` (Q, W), and how many codes were compared.

        Ties are ordered by the refinement distances of `rows`, if they are given, then by item id.
        """

    @abstractmethod
    def range_search(self, queries: Words, radius: int, threads: int | None = None) -> Hits:
        """Return all codes within a radius of each of `queries` (Q, W), nearest first."""

    @abstractmethod
    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""

    @abstractmethod
    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,)."""

    @abstractmethod
    def all_ids(self) -> Int64s:
        """Return the item ids of all codes (N,), in the order of `all_codes`."""

    @abstractmethod
    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (slots,); -1 of an empty one."""

    @abstractmethod
    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the segment without the item ids of ascending ranges, low to high inclusive."""

    @abstractmethod
    def select(self, mask: NDArray[np.bool_]) -> "Segment":
        """Return a segment with only those codes whose item ids are True in a mask over all item ids."""


@dataclass(frozen=True, eq=False)
class FlatSegment(Segment):
    """Codes `words` (W, N) with ascending `item_ids` (N,), so that a scan settles ties by id."""

    words: Words
    item_ids: ItemIds

    def __len__(self) -> int:
        """Return N."""
        return int(self.words.shape[1])

    def nearest(
        self, queries: Words, k: int, threads: int | None = None, *, rows: RefinedRows | None = None
    ) -> tuple[Hits, int]:
        """Compare every code."""
        if rows is not None:
            search = lambda some, k: self.nearest(some, k, threads)[0]  # noqa: E731
            within = lambda some, radius: self.range_search(some, radius, threads)  # noqa: E731
            return refined_nearest(queries, k, rows, len(self), search, within), len(queries) * len(self)
        found = top_k_words(queries, self.words, k, threads)
        ranks = pack_ranks(found.distances, self.item_ids.at(found.indices))
        return rectangular_hits(ranks, found.indices), len(queries) * len(self)

    def range_search(self, queries: Words, radius: int, threads: int | None = None) -> Hits:
        """Compare every code."""
        found = range_search_words(queries, self.words, radius, threads)
        return Hits(pack_ranks(found.distances, self.item_ids.at(found.indices)), found.starts, found.indices)

    def codes(self, slots: Int64s) -> Words:
        """Return the codes (n, W) in some slots."""
        return np.ascontiguousarray(self.words[:, slots].T)

    def all_codes(self) -> tuple[Words, Int64s]:
        """Return all codes (W, N) and their item ids (N,)."""
        return self.words, self.all_ids()

    def all_ids(self) -> Int64s:
        """Return the item ids of all codes (N,)."""
        return self.item_ids.at(slice(None))

    def slot_ids(self) -> Int64s:
        """Return the item id of each slot (N,): no slot is empty."""
        return self.all_ids()

    def drop_ranges(self, low: Int64s, high: Int64s) -> Self:
        """Return the codes that are in no range."""
        kept = ~in_ranges(self.item_ids, low, high)
        return self if kept.all() else replace(self, words=self.words[:, kept], item_ids=self.item_ids.select(kept))

    def select(self, mask: NDArray[np.bool_]) -> "FlatSegment":
        """Return some of the codes."""
        kept = mask[self.all_ids()]
        return FlatSegment(np.ascontiguousarray(self.words[:, kept]), self.item_ids.select(kept))

    def append(self, words: Words, item_ids: UInt32s) -> "FlatSegment":
        """Return a segment with more codes (W, n) of new item ids (n,)."""
        numbers = np.concatenate([self.all_ids(), item_ids])
        order = np.argsort(numbers)
        codes = np.concatenate([self.words, words], axis=1)[:, order]
        return FlatSegment(np.ascontiguousarray(codes), pack_item_ids(numbers[order]))


def in_ranges(item_ids: ItemIds, low: Int64s, high: Int64s) -> NDArray[np.bool_]:
    """Return which item ids (N,) are in one of several ascending ranges, low to high inclusive."""
    numbers = item_ids.at(slice(None))
    ends = np.concatenate([[-1], high])  # ids before the first range are in none
    return numbers <= ends[np.searchsorted(low, numbers, side="right")]


Sink = Callable[[Words, UInt32s, ClusterIds], None]
Feed = Callable[[Sink], None]
"""Calls a sink with every batch of codes (W, n), item ids (n,) and cluster ids (n,), in the order of item ids."""


def build_flat_segment(parts: int, count: int, feed: Feed, below: int = 2**32) -> FlatSegment:
    """Return `count` codes of `parts` words in the order of the feed; their item ids are below a number."""
    words, item_ids = np.empty((parts, count), np.uint64), empty_item_ids(count, below)
    end = 0

    def sink(codes: Words, numbers: UInt32s, _: ClusterIds) -> None:
        nonlocal end
        mine = slice(end, end + len(numbers))
        words[:, mine], item_ids.low[mine], item_ids.high[mine] = codes, numbers & 0xFFFF, numbers >> 16
        end += len(numbers)

    feed(sink)
    return FlatSegment(words, item_ids)
