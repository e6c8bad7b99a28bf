"""Ledger of the searches of a segment: what multi-index hashing would have saved, and what it would cost."""

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.clusters.segment import Segment
from proxyhash.index.hits import Hits
from proxyhash.index.mih.costs import MihCosts, build_seconds, cluster_seconds, expected_entries, scan_seconds
from proxyhash.index.mih.history import DistanceHistory
from proxyhash.index.mih.request import Request, last_distances
from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.utils.random import generator

_SAMPLE_SIZE = 4096  # codes from which the entries of buckets are estimated
_QUIET_SHARE = 0.1  # of the time to build tables that searches take before their distances are recorded
_SHARE_WEIGHT = 0.2  # of the latest search in the mean share of codes that clusters compare

Kind = tuple[int, int, int]


class Ledger:
    """Searches of one segment by its base plan, and the time that multi-index hashing would have saved.

    A ledger goes on where that of the segment before ended. The rule is that of renting and buying: tables are built when
    the time saved would have paid for building them. So the total time is at most about twice that of the best choice in
    hindsight.
    """

    def __init__(self, segment: Segment, bits: int, before: "Ledger | None" = None) -> None:
        self._segment = weakref.ref(segment)
        self._count, self._bits, self._parts = len(segment), bits, -(-bits // 64)
        self._is_flat = segment.plan == "scan"
        self._build_seconds = build_seconds(self._count, choose_substrings(bits, self._count))
        self._spent: float = 0.0 if before is None else before._spent
        self._saved: float = 0.0 if before is None else before._saved
        self._costs: MihCosts | None = None
        self._cluster_shares: dict[Kind, float] = {}
        self._histories: dict[Kind, DistanceHistory] = {} if before is None else before._histories

    def is_of(self, segment: Segment) -> bool:
        """Return whether this is the ledger of a segment."""
        return self._segment() is segment

    def history(self, request: Request) -> DistanceHistory:
        """Return the k-th distances of requests like this one."""
        return self._histories.setdefault(request.kind, DistanceHistory(self._bits))

    def base_seconds(self, request: Request) -> float:
        """Return the expected time of a request by the base plan."""
        if self._is_flat:
            return scan_seconds(self._count, self._parts, len(request), request.threads)
        compared = self._count * self._cluster_shares.get(request.kind, 0.0)
        return cluster_seconds(compared, self._parts, len(request), request.workers)

    def mih_seconds(self, request: Request) -> NDArray[np.float64]:
        """Return the time of each query of a request by multi-index hashing, by radius (bits + 1,)."""
        return self._require_costs().seconds / request.workers

    def max_compared(self, request: Request) -> int:
        """Return the number of codes after which a query by multi-index hashing took as long as by the base plan."""
        return self._require_costs().max_compared(self.base_seconds(request) * request.workers / len(request))

    def record(self, request: Request, hits: Hits) -> None:
        """Record a request that the base plan has answered."""
        self.record_share(request, hits)
        base = self.base_seconds(request)
        self._spent += base
        if self._spent < _QUIET_SHARE * self._build_seconds:
            return
        if request.k is not None:
            self.history(request).add(last_distances(hits, self._bits + 1))
        self._saved += max(0.0, base - self._expected_seconds(request))

    def reset(self) -> None:
        """Begin anew, after tables were built."""
        self._spent, self._saved = 0.0, 0.0

    def is_due(self, request: Request) -> bool:
        """Return whether tables would have paid for themselves, this request included."""
        if self._spent + self.base_seconds(request) < self._build_seconds:
            return False
        saving = self.base_seconds(request) - self._expected_seconds(request)
        return self._saved + max(0.0, saving) > self._build_seconds

    def is_faster(self, request: Request) -> bool:
        """Return whether multi-index hashing is expected to take less time than the base plan."""
        return self._expected_seconds(request) < self.base_seconds(request)

    def _expected_seconds(self, request: Request) -> float:
        """Return the expected time of a request with tables."""
        base, seconds = self.base_seconds(request), self.mih_seconds(request)
        if request.k is None:
            return float(len(request) * seconds[min(request.radius, self._bits)])
        return len(request) * self.history(request).choose(seconds, base / len(request))[1]

    def record_share(self, request: Request, hits: Hits) -> None:
        """Record the share of the codes that the clusters compared."""
        if hits.stats is not None and not self._is_flat:
            share = float(hits.stats.compared.mean()) / self._count
            before = self._cluster_shares.get(request.kind, share)
            self._cluster_shares[request.kind] = before + _SHARE_WEIGHT * (share - before)

    def _require_costs(self) -> MihCosts:
        if self._costs is None:
            substrings = choose_substrings(self._bits, self._count)
            segment: Any = self._segment()
            slots = segment.slots()
            chosen = generator(0, "multi-index sample").choice(slots, min(_SAMPLE_SIZE, len(slots)), replace=False)
            entries = expected_entries(segment.codes(chosen), self._count, substrings, self._bits)
            memory = substrings.memory(self._count, self._bits)
            self._costs = MihCosts(substrings, self._bits, memory, entries)
        return self._costs
