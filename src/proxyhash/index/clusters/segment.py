"""Codes in memory, ready to be searched, as they came; see `grouped` for those of which most need not be looked at."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.search import range_search_words, top_k_words
from proxyhash.index.item_ids import Longs, Positions, Starts, no_positions, positions_from

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class Found:
    """The best codes of each query, (Q, k): `keys` hold distance and position, `places` say where a code lies in memory."""

    keys: Words
    places: Longs

    @property
    def distances(self) -> NDArray[np.int16]:
        """Return the distances in bits."""
        return distances_of(self.keys)

    @property
    def positions(self) -> Longs:
        """Return the positions, the numbers that codes were given when they were added."""
        return positions_of(self.keys)


def keys_of(distances: NDArray[np.integer[Any]], positions: Longs) -> Words:
    """Return distances and positions in one."""
    return (distances.astype(np.uint64) << _HALF) | positions.astype(np.uint64)


def distances_of(keys: Words) -> NDArray[np.int16]:
    """Return the high halves of keys."""
    return (keys >> _HALF).astype(np.int16)


def positions_of(keys: Words) -> Longs:
    """Return the low halves of keys."""
    return (keys & _LOW).astype(np.int64)


class Segment(ABC):
    """Codes and their positions. Nothing in it ever changes."""

    lost: int = 0
    """places of codes that are not there any more, but still take memory"""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many codes there are."""

    @abstractmethod
    def nearest(self, queries: Words, k: int, threads: int | None = None) -> tuple[Found, int]:
        """Return the k nearest of each of `queries` (Q, W), ties by position, and how many codes were compared in all."""

    @abstractmethod
    def within(self, queries: Words, radius: int, threads: int | None = None) -> tuple[Longs, Found]:
        """Return where each query's results begin (Q + 1,), and all codes within a radius (n,), nearest first."""

    @abstractmethod
    def codes(self, places: Longs) -> Words:
        """Return the codes (n, W) that lie at some places."""

    @abstractmethod
    def everything(self) -> tuple[Words, Longs]:
        """Return all codes (W, N) and their positions (N,)."""

    @abstractmethod
    def without(self, low: Longs, high: Longs) -> Self:
        """Return the segment without the positions of ascending ranges, low to high inclusive."""


@dataclass(frozen=True, eq=False)
class PlainSegment(Segment):
    """Codes `words` (W, N) with `positions` (N,) that ascend: the plain scan settles ties as we do."""

    words: Words
    positions: Positions

    def __len__(self) -> int:
        """Return N."""
        return int(self.words.shape[1])

    def nearest(self, queries: Words, k: int, threads: int | None = None) -> tuple[Found, int]:
        """Look at everything."""
        found = top_k_words(queries, self.words, k, threads)
        keys = keys_of(found.distances, self.positions.at(found.indices))
        return Found(keys, found.indices), len(queries) * len(self)

    def within(self, queries: Words, radius: int, threads: int | None = None) -> tuple[Longs, Found]:
        """Look at everything."""
        found = range_search_words(queries, self.words, radius, threads)
        return found.starts, Found(keys_of(found.distances, self.positions.at(found.indices)), found.indices)

    def codes(self, places: Longs) -> Words:
        """Return the codes (n, W) that lie at some places."""
        return np.ascontiguousarray(self.words[:, places].T)

    def everything(self) -> tuple[Words, Longs]:
        """Return all codes (W, N) and their positions (N,)."""
        return self.words, self.positions.at(slice(None))

    def without(self, low: Longs, high: Longs) -> Self:
        """Return the codes that are not in any range."""
        kept = ~in_ranges(self.positions, low, high)
        return self if kept.all() else replace(self, words=self.words[:, kept], positions=self.positions.some(kept))

    def joined(self, words: Words, positions: Starts) -> "PlainSegment":
        """Return a segment with more codes (W, n) at new positions (n,)."""
        numbers = np.concatenate([self.positions.at(slice(None)), positions])
        order = np.argsort(numbers)
        codes = np.concatenate([self.words, words], axis=1)[:, order]
        return PlainSegment(np.ascontiguousarray(codes), positions_from(numbers[order]))


def in_ranges(positions: Positions, low: Longs, high: Longs) -> NDArray[np.bool_]:
    """Return which positions (N,) are in one of some ascending ranges, low to high inclusive."""
    numbers = positions.at(slice(None))
    ends = np.concatenate([[-1], high])  # what comes before the first range is in none
    return numbers <= ends[np.searchsorted(low, numbers, side="right")]


Take = Callable[[Words, Starts, NDArray[np.uint16]], None]
Fill = Callable[[Take], None]
"""Calls what it is given with every batch of codes (W, n), positions (n,) and groups (n,), in the order of positions."""


def plain_segment(parts: int, count: int, fill: Fill, below: int = 2**32) -> PlainSegment:
    """Return codes of so many words as they come, with positions below a number."""
    words, positions = np.empty((parts, count), np.uint64), no_positions(count, below)
    end = 0

    def take(codes: Words, numbers: Starts, _: NDArray[np.uint16]) -> None:
        nonlocal end
        mine = slice(end, end + len(numbers))
        words[:, mine], positions.low[mine], positions.high[mine] = codes, numbers & 0xFFFF, numbers >> 16
        end += len(numbers)

    fill(take)
    return PlainSegment(words, positions)
