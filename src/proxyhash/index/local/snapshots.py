"""The codes of an index in memory, kept in step with its file: one large segment, and a small one with what came since."""

import ctypes
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.clusters.clustered import GroupedSegment, grouped_segment
from proxyhash.index.clusters.segment import Found, PlainSegment, Segment, Take, plain_segment
from proxyhash.index.local.blocks import Place, group_sizes, joined, places, read_blocks
from proxyhash.index.local.store import Store

RECENT = 65_536  # codes that may have come or gone since the large segment was built, or an eighth of it

Kind = TypeVar("Kind", bound=Segment)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One state of the index: searches hold it, whatever is committed meanwhile."""

    edition: int
    grouped_at: int  # how many codes there were when centres were last chosen
    bits: int
    main: PlainSegment | GroupedSegment
    recent: PlainSegment
    generation: int = 0
    places: dict[int, Place] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many codes there are."""
        return len(self.main) + len(self.recent)

    @property
    def segments(self) -> list[Segment]:
        """Return what must be searched."""
        return [segment for segment in (self.main, self.recent) if len(segment)]

    def nearest(self, queries: Words, k: int, threads: int | None = None) -> tuple[Found, Words, int]:
        """Return the k nearest of each query (Q, W), their codes (Q, k, W), and how many codes were compared."""
        parts, codes, looked = [], [], 0
        for segment in self.segments:
            found, compared = segment.nearest(queries, k, threads)
            parts.append(found)
            codes.append(segment.codes(found.places.ravel()).reshape(*found.places.shape, queries.shape[1]))
            looked += compared
        if len(parts) == 1:
            return parts[0], codes[0], looked
        keys, stored = np.concatenate([part.keys for part in parts], 1), np.concatenate(codes, 1)
        order = np.argsort(keys, axis=1)[:, :k]
        found = Found(np.take_along_axis(keys, order, 1), order)
        return found, np.take_along_axis(stored, order[:, :, None], 1), looked

    def within(self, queries: Words, radius: int, threads: int | None = None) -> list[Words]:
        """Return the keys of all codes within a radius of each query, nearest first."""
        rows: list[list[Words]] = [[] for _ in queries]
        for segment in self.segments:
            starts, found = segment.within(queries, radius, threads)
            for q in range(len(queries)):
                rows[q].append(found.keys[starts[q] : starts[q + 1]])
        return [np.sort(np.concatenate([np.zeros(0, np.uint64), *parts])) for parts in rows]


class CodesInMemory:
    """Reads the codes of a store, and reads again only what has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        """Return the last state that was committed, by whatever process."""
        with self._lock, self._store.reading():
            generation = self._store.fact("generation")
            if self._snapshot is None or generation != self._snapshot.generation:
                self._snapshot = self._next(self._snapshot, generation)
            return self._snapshot

    def _next(self, last: Snapshot | None, generation: int) -> Snapshot:
        edition = self._store.fact("live")
        grouped_at = self._store.value("SELECT grouped_at FROM editions WHERE number = ?", edition)
        now = places(self._store, edition)
        if last is None or (last.edition, last.grouped_at) != (edition, grouped_at):
            self._snapshot = last = None  # its memory is needed for the next
            return load(self._store, edition, now, generation)
        changed = [number for number, place in now.items() if last.places.get(number) != place]
        stale = [place for number, place in last.places.items() if now.get(number) != place]
        coming = len(last.recent) + sum(now[number].items for number in changed)
        main = without(last.main, stale) if coming <= _room(last.main) else None
        if main is None or main.lost > _room(main):
            self._snapshot = last = main = None
            return load(self._store, edition, now, generation)
        recent = without(last.recent, stale)
        if changed:
            block = joined(list(read_blocks(self._store, edition, changed)))
            recent = recent.joined(block.words(), block.positions)
        return Snapshot(edition, grouped_at, last.bits, main, recent, generation, now)


def _room(segment: Segment) -> int:
    """Return how many codes may come or go before everything is worth ordering anew."""
    return max(RECENT, len(segment) // 8)


def load(store: Store, edition: int, now: dict[int, Place], generation: int) -> Snapshot:
    """Read all codes of an edition."""
    statement = "SELECT bits, centres, grouped_at FROM editions WHERE number = ?"
    bits, centres, grouped_at = store.rows(statement, edition)[0]
    parts = (bits + 63) // 64

    def fill(take: Take) -> None:
        for block in read_blocks(store, edition, list(now)):
            take(block.words(), block.positions, block.groups)

    below = 1 + max((place.high for place in now.values()), default=0)
    main: PlainSegment | GroupedSegment
    if centres is None:
        main = plain_segment(parts, sum(place.items for place in now.values()), fill, below)
    else:
        c = np.ascontiguousarray(to_words(unpacked_centres(centres, bits)).T)
        main = grouped_segment(c, group_sizes(store, edition, len(c)), fill, below)
    store.rows("PRAGMA shrink_memory")  # the pages that were read are not needed any more
    _give_back()
    recent = plain_segment(parts, 0, lambda _: None)
    return Snapshot(edition, grouped_at, bits, main, recent, generation, now)


def _give_back() -> None:
    """Return what was freed to the system: reading leaves gaps that glibc would keep for later."""
    with suppress(OSError, AttributeError):  # elsewhere there is no such library, and no such need
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def unpacked_centres(blob: bytes, bits: int) -> Packed:
    """Return stored centres (C, bytes)."""
    return np.frombuffer(blob, np.uint8).reshape(-1, (bits + 7) // 8)


def without(segment: Kind, stale: list[Place]) -> Kind:
    """Return a segment without the positions of blocks that were written anew or deleted."""
    if not stale or not len(segment):
        return segment
    low, high = np.sort([place.low for place in stale]), np.sort([place.high for place in stale])
    return segment.without(low, high)
