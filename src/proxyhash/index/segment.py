"""Codes in memory, ready to be searched: as they came, or ordered by group so that most of them need not be looked at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import top_k
from proxyhash.codes.bits import Words
from proxyhash.codes.search import for_queries
from proxyhash.index import grouping_kernels, kernels
from proxyhash.index.kernels import Longs, Spans, Starts

_HELD_AT_ONCE = 4_000_000  # results that are gathered at a time, 16 bytes each
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


def distances_of(keys: Words) -> NDArray[np.int16]:
    """Return the high halves of keys."""
    return (keys >> np.uint64(32)).astype(np.int16)


def positions_of(keys: Words) -> Longs:
    """Return the low halves of keys."""
    return (keys & _LOW).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Groups:
    """Where the shells of each group lie: `centres` (W, C), `shells` (C, bits + 2) and `spans` (C, 2); see the kernels."""

    centres: Words
    shells: Starts
    spans: Spans


@dataclass(frozen=True, eq=False)
class Segment:
    """Codes `words` (W, N) and their `positions` (N,), ascending if there are no groups. Nothing in it ever changes."""

    words: Words
    positions: Starts
    groups: Groups | None = None

    def __len__(self) -> int:
        """Return N."""
        return len(self.positions)

    def codes(self, places: Longs) -> Words:
        """Return the codes (n, W) that lie at some places."""
        return np.ascontiguousarray(self.words[:, places].T)

    def nearest(self, queries: Words, k: int, threads: int | None = None) -> tuple[Found, int]:
        """Return the k nearest of each of `queries` (Q, W), ties by position, and how many codes were compared in all."""
        k = min(k, len(self))
        if self.groups is None and len(self.words) == 1:
            return self._scanned(queries, k, threads), len(queries) * len(self)
        keys, places = np.empty((len(queries), k), np.uint64), np.empty((len(queries), k), np.int64)
        looked = np.zeros(len(queries), np.int64)
        order = self._order(queries)
        sorted_queries = queries[order]

        def search(rows: slice) -> None:
            shape = (rows.stop - rows.start, k)
            key, place = np.empty(shape, np.uint64), np.empty(shape, np.int64)
            if self.groups is None:
                kernels.nearest_plain(sorted_queries[rows], self.words, self.positions, key, place)
                looked[rows] = len(self)
            else:
                g = self.groups
                grouped = (self.words, self.positions, g.centres, g.shells, g.spans, len(g.shells) if len(key) < 8 else 16)
                kernels.nearest_grouped(sorted_queries[rows], *grouped, key, place, looked[rows])
            keys[order[rows]], places[order[rows]] = key, place

        for_queries(len(queries), threads, search, at_once=max(1, _HELD_AT_ONCE // max(1, k)))
        return Found(keys, places), int(looked.sum())

    def within(self, queries: Words, radius: int, threads: int | None = None) -> tuple[Longs, Found]:
        """Return where each query's results begin (Q + 1,), and all codes within a radius (n,), nearest first."""
        counts = np.zeros(len(queries), np.int64)
        nothing = np.empty(0, np.uint64), np.empty(0, np.int64)
        for_queries(len(queries), threads, lambda rows: self._collect(queries[rows], radius, counts[rows], *nothing, False))
        starts = np.concatenate([[0], np.cumsum(counts)])
        keys, places = np.empty(starts[-1], np.uint64), np.empty(starts[-1], np.int64)

        def collect(rows: slice) -> None:
            self._collect(queries[rows], radius, starts[rows].copy(), keys, places, True)
            for row in range(rows.start, rows.stop):
                mine = slice(starts[row], starts[row + 1])
                order = np.argsort(keys[mine])
                keys[mine], places[mine] = keys[mine][order], places[mine][order]

        for_queries(len(queries), threads, collect)
        return starts, Found(keys, places)

    def _collect(self, queries: Words, radius: int, ends: Longs, keys: Words, places: Longs, write: bool) -> None:
        if self.groups is None:
            kernels.within_plain(queries, self.words, self.positions, radius, ends, keys, places, write)
        else:
            grouped = (self.words, self.positions, self.groups.centres, self.groups.shells)
            kernels.within_grouped(queries, *grouped, radius, ends, keys, places, write)

    def _order(self, queries: Words) -> Longs:
        """Return an order in which neighbouring queries look at the same groups, which then lie in the cache."""
        if self.groups is None or len(queries) < 3:
            return np.arange(len(queries))
        nearest = np.empty(len(queries), np.uint16)
        grouping_kernels.nearest_centres(
            np.ascontiguousarray(queries.T), np.ascontiguousarray(self.groups.centres.T), nearest
        )
        return np.argsort(nearest, kind="stable")

    def _scanned(self, queries: Words, k: int, threads: int | None) -> Found:
        """Let the plain scan answer: positions ascend, so its ties are settled as ours are."""
        found = top_k(_bytes(queries), _bytes(self.words.T), k, threads=threads)
        positions = self.positions[found.indices].astype(np.uint64)
        return Found((found.distances.astype(np.uint64) << np.uint64(32)) | positions, found.indices)


Take = Callable[[Words, Starts, NDArray[np.uint16]], None]
Fill = Callable[[Take], None]
"""Calls what it is given with every batch of codes (W, n), positions (n,) and groups (n,), in the order of positions."""


def plain_segment(parts: int, count: int, fill: Fill) -> Segment:
    """Return codes as they come."""
    words, positions = np.empty((parts, count), np.uint64), np.empty(count, np.uint32)
    end = 0

    def take(codes: Words, numbers: Starts, _: NDArray[np.uint16]) -> None:
        nonlocal end
        words[:, end : end + len(numbers)], positions[end : end + len(numbers)] = codes, numbers
        end += len(numbers)

    fill(take)
    return Segment(words, positions)


def grouped_segment(centres: Words, sizes: Longs, fill: Fill, threads: int | None = None) -> Segment:
    """Return codes ordered by group and shell; `sizes` (C,) says how many fall to each of `centres` (C, W).

    Codes go straight to their group, and groups are put in order one by one: little memory is needed beyond the result.
    """
    bits = 64 * centres.shape[1]
    words, positions = np.empty((centres.shape[1], sizes.sum()), np.uint64), np.empty(sizes.sum(), np.uint32)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ends = starts[:-1].copy()
    fill(lambda codes, numbers, groups: grouping_kernels.place_in_groups(codes, numbers, groups, words, positions, ends))
    shells = np.empty((len(centres), bits + 2), np.uint32)

    def order(rows: slice) -> None:
        for group in range(rows.start, rows.stop):
            grouping_kernels.order_group(words, positions, centres[group], starts[group], starts[group + 1], shells[group])

    for_queries(len(centres), threads, order)
    return Segment(words, positions, Groups(np.ascontiguousarray(centres.T), shells, spans_of(shells)))


def spans_of(shells: Starts) -> Spans:
    """Return the lowest and the highest shell of each group that hold a code; (0, -1) of an empty one."""
    held: NDArray[np.bool_] = np.diff(shells.astype(np.int64), axis=1) > 0
    lowest, highest = held.argmax(1), held.shape[1] - 1 - held[:, ::-1].argmax(1)
    return np.where(held.any(axis=1, keepdims=True), np.stack([lowest, highest], 1), (0, -1)).astype(np.int16)


def _bytes(words: Words) -> NDArray[np.uint8]:
    """Return codes (N, 1) of one word as packed ones of eight bytes; for a contiguous array nothing is copied."""
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 8)
