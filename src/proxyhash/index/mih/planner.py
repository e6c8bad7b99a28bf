"""Choice between the exact plans of a segment: a scan or clusters, and multi-index hashing."""

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.hits import Hits, SearchStats, merge_hits, spread_hits
from proxyhash.index.mih.costs import cluster_seconds, scan_seconds
from proxyhash.index.mih.ledger import Ledger
from proxyhash.index.mih.partial_hits import PartialHits, join_parts
from proxyhash.index.mih.request import Request, last_distances
from proxyhash.index.mih.table_cache import TableCache
from proxyhash.index.plans import Plan
from proxyhash.index.refinement.ties import refine, refine_ties
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.mih.multi_index import MultiIndex

MIN_WORDS_FOR_TABLES = 1 << 19  # of 64 bits of all codes; fewer are scanned in the time that the choice takes
_FIRST_PIECE = 32  # queries of a batch that are searched before the radius to try is chosen again
_PIECE_GROWTH = 4


class Planner:
    """Searches segments by the plan that is expected to be the fastest, or by one that is asked for.

    It holds the tables of the latest segment, and what it learned from earlier searches.
    """

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._compared, self._plans = 0, Counter[str]()
        self.tables = TableCache(bits)

    @property
    def mean_compared(self) -> float | None:
        """Return the mean number of codes that a query was compared with; None before the first one."""
        with self._lock:
            return self._compared / self._plans.total() if self._plans else None

    @property
    def searched_by(self) -> dict[str, int]:
        """Return how many queries were answered by each plan."""
        with self._lock:
            return dict(self._plans)

    def base_seconds(self, segment: Segment, queries: int, threads: int) -> float:
        """Return the expected seconds of so many queries by a scan, or by clusters like earlier ones."""
        parts = -(-self._bits // 64)
        if segment.plan == "scan":
            return scan_seconds(len(segment), parts, queries, threads)
        return cluster_seconds(self.mean_compared or 0.0, parts, queries, threads)

    def search(self, segment: Segment, request: Request, plan: Plan | None = None) -> Hits:
        """Return the hits of a request with their stats; an InputError if the plan is not possible."""
        hits = self._search(segment, request, plan) if request.rows is None else self._refine(segment, request, plan)
        assert hits.stats is not None
        with self._lock:
            self._plans.update(hits.stats.plans)
            self._compared += int(hits.stats.compared.sum())
        return hits

    def _refine(self, segment: Segment, request: Request, plan: Plan | None) -> Hits:
        """Return the hits in refined order: in one pass over clusters, or by a further search for codes that tie."""
        if segment.plan == "clusters" and plan in (None, "clusters"):
            return request.search_base(segment)
        plain, rows = replace(request, rows=None), request.rows
        assert rows is not None
        if request.k is None:
            return refine(self._search(segment, plain, plan), rows)
        first = self._search(segment, replace(plain, k=request.k + 1), plan)

        def within(queries: Words, radius: int) -> Hits:
            return self._search(segment, replace(plain, queries=queries, k=None, radius=radius), plan)

        return replace(refine_ties(first, request.queries, request.k, rows, len(segment), within), stats=first.stats)

    def _search(self, segment: Segment, request: Request, plan: Plan | None) -> Hits:
        if plan == "mih":
            found = request.search_tables(self.tables.require(segment))
            return replace(found.hits, stats=SearchStats(("mih",) * len(request), found.compared))
        if plan == "scan" and segment.plan != "scan":
            return self._scan_copy(segment, request)
        if plan == "clusters" and segment.plan != "clusters":
            raise InputError(
                "This index has no clusters, because it is small or its codes do not cluster: search it with plan "
                "'scan' or 'mih', or leave the plan out."
            )
        if plan is not None or len(segment) * -(-self._bits // 64) < MIN_WORDS_FOR_TABLES or not len(request):
            return request.search_base(segment)
        return self._choose(segment, request)

    def _scan_copy(self, segment: Segment, request: Request) -> Hits:
        """Return the hits by a scan of a clustered segment, whose codes are copied."""
        copy = self.tables.flat(segment)
        allowed = None if request.allowed is None else SlotMask.of(request.allowed.at(copy.slots))
        hits = replace(request, allowed=allowed).search_base(copy.segment)
        return replace(hits, slots=copy.slots[hits.slots])

    def _choose(self, segment: Segment, request: Request) -> Hits:
        """Return the hits by the plan with the least expected time; build tables if they would have paid."""
        with self._lock:
            ledger = self._ledger
            if ledger is None or not ledger.is_of(segment):
                ledger = self._ledger = Ledger(segment, self._bits, ledger)
            tables = self.tables.get(segment)
            is_due = tables is None and self.tables.can_build(segment) and ledger.is_due(request)
        if is_due:
            tables = self.tables.try_build(segment)
            if tables is not None:
                ledger.reset()
        if tables is not None and request.k is not None:
            return self._nearest(segment, request, tables, ledger)
        if tables is not None and ledger.is_faster(request):
            found = request.search_tables(tables, max_compared=ledger.max_compared(request))
            return self._complete(found, segment, request, ledger)
        hits = request.search_base(segment)
        with self._lock:
            ledger.record(request, hits)
        return hits

    def _nearest(self, segment: Segment, request: Request, tables: "MultiIndex", ledger: Ledger) -> Hits:
        """Search for the queries piece by piece, up to a radius that earlier ones suggest; then scan for the others."""
        seconds, base = ledger.mih_seconds(request), ledger.base_seconds(request) / len(request)
        max_compared, history = ledger.max_compared(request), ledger.history(request)
        parts, tried, size = [], 0, _FIRST_PIECE
        while tried < len(request):
            with self._lock:
                radius, _ = history.choose(seconds, base)
            if radius is None:
                break
            rows = slice(tried, min(tried + size, len(request)))
            parts.append(request.take(rows).search_tables(tables, radius, max_compared))
            with self._lock:
                history.add(last_distances(parts[-1].hits, self._bits + 1))
            tried, size = rows.stop, _PIECE_GROWTH * size
        found = join_parts(parts, len(request))
        hits = self._complete(found, segment, request, ledger)
        distances = last_distances(hits, self._bits + 1)
        is_near = ~found.is_complete & (found.compared <= max_compared)  # the others were given up for too many codes
        with self._lock:
            history.resolve(distances[:tried][is_near[:tried]])
            history.add(distances[tried:])
        return hits

    def _complete(self, found: PartialHits, segment: Segment, request: Request, ledger: Ledger) -> Hits:
        """Return the hits of multi-index hashing, and those of the base plan for the queries that were given up."""
        missing = np.flatnonzero(~found.is_complete)
        if not len(missing):
            return replace(found.hits, stats=SearchStats(("mih",) * len(request), found.compared))
        base_request = request.take(missing)
        base = base_request.search_base(segment)
        assert base.stats is not None
        with self._lock:
            ledger.record_share(base_request, base)
        compared, plans = found.compared.copy(), np.full(len(request), "mih", object)
        compared[missing] += base.stats.compared
        plans[missing] = base.stats.plans
        hits = merge_hits([found.hits, spread_hits(base, missing, len(request))], len(request))
        return replace(hits, stats=SearchStats(tuple(plans), compared))
