"""Snapshots of an index's codes in memory, kept in step with its file: a large segment, and a small one of later codes."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from proxyhash.codes.bits import Words, to_words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import FlatSegment, Segment, Sink, build_flat_segment
from proxyhash.index.clusters.word_segment import WordSegment, build_word_segment
from proxyhash.index.hits import Hits, merge_hits, merge_stats
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.blocks import BlockInfo, cluster_sizes, concat_blocks, list_blocks, read_blocks
from proxyhash.index.local.late_filter import LateFilter
from proxyhash.index.local.store import Store
from proxyhash.index.mih.planner import Planner
from proxyhash.index.mih.request import Request
from proxyhash.index.plans import Plan
from proxyhash.index.refinement.distances import RefinedRows
from proxyhash.index.refinement.ties import refine
from proxyhash.utils.available_memory import check_memory
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.index.clusters.clustered import ClusteredSegment

MAX_DELTA = (
    65_536  # codes that may be added or removed before the main segment is rebuilt; or an eighth of it, if that is more
)
_BYTES_BESIDE_CODE = 3.2  # of an item id, and of empty slots
MAX_COLD_CODES = 1 << 18  # codes that numpy compares with a query in some milliseconds

RowsOf = Callable[[Segment], RefinedRows]
"""Returns the refinement rows of queries and of the slots of a segment."""

SomeSegment = TypeVar("SomeSegment", bound=Segment)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One state of the index. A search holds it, whatever is committed meanwhile."""

    version: int
    clustered_at: int  # number of codes when centroids were last chosen
    bits: int
    main: "FlatSegment | ClusteredSegment | WordSegment"
    delta: FlatSegment | WordSegment  # codes added since `main` was built
    model: str | None = None  # fingerprint
    generation: int = 0
    times_opened: int = 0  # of the store, when the snapshot was taken
    blocks: dict[int, BlockInfo] = field(default_factory=dict)
    is_cold: bool = False  # the codes are in segments that need no compiled functions
    planner: Planner = field(kw_only=True)  # shared by the snapshots that follow
    filters: tuple[SlotMask | LateFilter | None, SlotMask | None] = (None, None)  # of main and delta; None: all slots

    def __len__(self) -> int:
        """Return the number of codes."""
        return len(self.main) + len(self.delta)

    @property
    def codes_id(self) -> tuple[int, int]:
        """Return which codes these are; see `Store.codes_id`."""
        return self.times_opened, self.version

    @property
    def segments(self) -> list[Segment]:
        """Return the segments that hold codes."""
        return [segment for segment in (self.main, self.delta) if len(segment)]

    def nearest(
        self,
        queries: Words,
        k: int,
        threads: int | None = None,
        *,
        with_codes: bool = False,
        plan: Plan | None = None,
        rows: RowsOf | None = None,
    ) -> tuple[Hits, int]:
        """Return the k nearest codes of each of `queries` (Q, W), and how many codes were compared.

        `rows` returns the refinement rows of a segment.
        """
        parts = self._search(queries, threads, plan, rows, with_codes=with_codes, k=k)
        stats = merge_stats(parts, len(queries))
        return replace(merge_hits(parts, len(queries), k), stats=stats), int(stats.compared.sum())

    def range_search(
        self,
        queries: Words,
        radius: int,
        threads: int | None = None,
        *,
        with_codes: bool = False,
        plan: Plan | None = None,
        rows: RowsOf | None = None,
    ) -> Hits:
        """Return all codes within a radius of each of `queries` (Q, W), nearest first; `rows` as for `nearest`."""
        parts = self._search(queries, threads, plan, rows, with_codes=with_codes, radius=radius)
        return replace(merge_hits(parts, len(queries)), stats=merge_stats(parts, len(queries)))

    def _search(
        self,
        queries: Words,
        threads: int | None,
        plan: Plan | None,
        rows: RowsOf | None,
        *,
        with_codes: bool,
        k: int | None = None,
        radius: int = 0,
    ) -> list[Hits]:
        """Return the hits of each segment that holds codes, with their stats. Only the main segment has several plans."""
        threads = available_threads() if threads is None else check_int("threads", threads, 1)
        parts = []
        for segment, kept in zip((self.main, self.delta), self.filters, strict=True):
            if not len(segment):
                continue
            refined = None if rows is None else rows(segment)
            request = Request(queries, threads, k, radius, None if isinstance(kept, LateFilter) else kept, refined)
            if isinstance(kept, LateFilter):
                hits = kept.search(request, lambda one: self.planner.search(self.main, one, plan))
            elif segment is self.main:
                hits = self.planner.search(segment, request, plan)
            else:
                hits = request.search_base(segment)
            parts.append(add_codes(hits, segment) if with_codes else hits)
        return parts

    def item_ids(self) -> Int64s:
        """Return the item ids of all codes (N,)."""
        return np.concatenate([segment.all_ids() for segment in (self.main, self.delta)])


def refine_segment(hits: Hits, segment: Segment, rows: RowsOf | None) -> Hits:
    """Return the hits of a segment in refined order, if there are rows."""
    return hits if rows is None else refine(hits, rows(segment))


def add_codes(hits: Hits, segment: Segment) -> Hits:
    """Return the hits of a segment with their stored codes."""
    return replace(hits, codes=segment.codes(hits.slots))


class SnapshotCache:
    """The latest snapshot of a store. After a change, only the blocks that changed are read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._snapshot: Snapshot | None = None

    @property
    def last(self) -> Snapshot | None:
        """Return the snapshot that was read last; None before the first search."""
        return self._snapshot

    def recent(self) -> Snapshot:
        """Return the snapshot that was read last, without asking the file for a later one; the latest if there is none."""
        snapshot = self._snapshot
        return self.latest() if snapshot is None or _is_outdated(snapshot) else snapshot

    def latest(self) -> Snapshot:
        """Return the last state that was committed, by whatever process."""
        with self._store.reading():
            if self._snapshot is not None and self._snapshot.times_opened != self._store.times_opened:
                self._snapshot = None  # the file was replaced by another one
            if self._snapshot is not None and _is_outdated(self._snapshot):
                self._snapshot = None
            if self._snapshot is None or not self.is_latest(self._snapshot):
                meta = self._store.meta()
                self._snapshot = self._next(self._snapshot, meta.active_version, meta.generation)
            return self._snapshot

    def is_latest(self, snapshot: Snapshot) -> bool:
        """Return whether nothing was committed since a snapshot was taken; inside a transaction, that stays so."""
        generation = self._store.generation  # first: it opens a file that was replaced
        return (snapshot.times_opened, snapshot.generation) == (self._store.times_opened, generation)

    def _next(self, last: Snapshot | None, version: int, generation: int) -> Snapshot:
        clustered_at = self._store.version_info(version).clustered_at
        now = list_blocks(self._store, version)
        if last is None or (last.version, last.clustered_at) != (version, clustered_at):
            self._snapshot = last = None  # frees its memory for the next one
            return load_snapshot(self._store, version, now, generation)
        changed = [number for number, info in now.items() if last.blocks.get(number) != info]
        stale = [info for number, info in last.blocks.items() if now.get(number) != info]
        incoming = len(last.delta) + sum(now[number].size for number in changed)
        main = _drop_blocks(last.main, stale) if incoming <= _max_changes(last.main) else None
        if main is None or main.tombstones > _max_changes(main):
            self._snapshot = last = main = None
            return load_snapshot(self._store, version, now, generation)
        delta = _drop_blocks(last.delta, stale)
        if changed:
            block = concat_blocks(list(read_blocks(self._store, version, changed)))
            delta = delta.append(block.words(), block.item_ids)
        return replace(last, main=main, delta=delta, generation=generation, blocks=now)


def _is_outdated(snapshot: Snapshot) -> bool:
    """Return whether a snapshot needs no compiled functions, though they are loaded by now."""
    return snapshot.is_cold and cold_start.is_over


def _max_changes(segment: Segment) -> int:
    """Return how many codes may be added or removed before a segment is rebuilt."""
    return max(MAX_DELTA, len(segment) // 8)


def load_snapshot(store: Store, version: int, now: dict[int, BlockInfo], generation: int) -> Snapshot:
    """Read all codes of a version; an InputError if they do not fit in memory."""
    _check_memory(store, version)
    info, centroids = store.version_info(version), store.centroids(version)
    parts = (info.bits + 63) // 64

    def feed(sink: Sink) -> None:
        for block in read_blocks(store, version, list(now)):
            sink(block.words(), block.item_ids, block.clusters)

    below = 1 + max((block.max_id for block in now.values()), default=0)
    main: FlatSegment | ClusteredSegment | WordSegment
    delta: FlatSegment | WordSegment
    count, planes = sum(block.size for block in now.values()), 8 * -(-info.bits // 8)
    is_cold = count <= MAX_COLD_CODES and not cold_start.is_over
    if is_cold:
        main, delta = build_word_segment(parts, count, feed, below), build_word_segment(parts, 0, lambda _: None)
    elif centroids is None:
        main = build_flat_segment(planes, count, feed, below)
    else:
        from proxyhash.index.clusters.clustered import build_clustered_segment  # defines many compiled functions

        c = np.ascontiguousarray(to_words(centroids).T)
        main = build_clustered_segment(c, cluster_sizes(store, version, len(c)), feed, below)
    if not is_cold:
        delta = build_flat_segment(planes, 0, lambda _: None)
    store.rows("PRAGMA shrink_memory")  # the pages that were read are not needed any more
    _trim_memory()
    times_opened = store.times_opened
    return Snapshot(
        version,
        info.clustered_at,
        info.bits,
        main,
        delta,
        info.model,
        generation,
        times_opened,
        now,
        is_cold,
        planner=Planner(info.bits),
    )


def _check_memory(store: Store, version: int) -> None:
    info = store.version_info(version)
    needed = int(info.num_codes * ((info.bits + 7) // 8 + _BYTES_BESIDE_CODE))
    remedy = "use a machine with more memory, fewer bits, or an index on Milvus"
    check_memory(needed, f"The {info.num_codes:,} codes of {store.path.parent} need", remedy)


def _trim_memory() -> None:
    """Return freed memory to the system: glibc would keep the gaps that reading leaves."""
    with suppress(OSError, AttributeError):  # other systems have no such library, and no such need
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _drop_blocks(segment: SomeSegment, stale: list[BlockInfo]) -> SomeSegment:
    """Return a segment without the item ids of blocks that were rewritten or deleted."""
    if not stale or not len(segment):
        return segment
    low, high = np.sort([info.min_id for info in stale]), np.sort([info.max_id for info in stale])
    return segment.drop_ranges(low, high)
