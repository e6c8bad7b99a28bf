"""One search of a segment, and its base plan: a scan, or clusters."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.hits import Hits, SearchStats
from proxyhash.index.item_ids import Int64s
from proxyhash.index.mih.partial_hits import NO_LIMIT, PartialHits
from proxyhash.index.refinement.distances import RefinedRows
from proxyhash.index.refinement.ties import refine

if TYPE_CHECKING:
    from proxyhash.index.mih.multi_index import MultiIndex


@dataclass(frozen=True, eq=False)
class Request:
    """The k nearest codes of `queries` (Q, W), or all within `radius` if k is None; only `allowed` slots.

    Ties in distance are ordered by `rows`, if they are given.
    """

    queries: Words
    threads: int
    k: int | None = None
    radius: int = 0
    allowed: SlotMask | None = None
    rows: RefinedRows | None = None

    def __len__(self) -> int:
        """Return Q."""
        return len(self.queries)

    @property
    def workers(self) -> int:
        """Return how many threads have a query."""
        return max(1, min(self.threads, len(self)))

    @cached_property
    def kind(self) -> tuple[int, int, int]:
        """Return what similar requests share: about the same k and as many allowed codes, or the same radius."""
        size = -1 if self.allowed is None else self.allowed.count.bit_length()
        return (-1, self.radius, size) if self.k is None else (self.k.bit_length(), 0, size)

    def take(self, rows: Int64s | slice) -> "Request":
        """Return the request with some of the queries."""
        chosen = np.arange(len(self))[rows]
        mine = None if self.rows is None else self.rows.take(chosen)
        return replace(self, queries=np.ascontiguousarray(self.queries[rows]), rows=mine)

    def search_base(self, segment: Segment) -> Hits:
        """Return the hits by a scan of a flat segment, or by the clusters of a clustered one."""
        restriction: dict[str, Any] = {} if self.allowed is None else {"allowed": self.allowed}
        if self.k is None:
            hits = segment.range_search(self.queries, self.radius, self.threads, **restriction)
            compared = None if hits.stats is None else hits.stats.compared
            hits = hits if self.rows is None else refine(hits, self.rows)
        else:
            hits, total = segment.nearest(self.queries, self.k, self.threads, **restriction, rows=self.rows)
            compared = np.full(len(self), round(total / max(1, len(self))))
        plan = segment.plan
        if compared is None:
            compared = np.full(len(self), len(segment))
        return replace(hits, stats=SearchStats((plan,) * len(self), compared))

    def search_tables(
        self, tables: "MultiIndex", max_radius: int | None = None, max_compared: int = NO_LIMIT
    ) -> PartialHits:
        """Return the hits by multi-index hashing, with its limits."""
        if self.k is None:
            return tables.range_search(
                self.queries, self.radius, self.threads, allowed=self.allowed, max_compared=max_compared
            )
        return tables.nearest(
            self.queries, self.k, self.threads, allowed=self.allowed, max_radius=max_radius, max_compared=max_compared
        )


def last_distances(hits: Hits, default: int) -> Int64s:
    """Return the distance of the last hit of each query (Q,), a default for those without one."""
    counts = np.diff(hits.offsets)
    out = np.full(len(hits), default, np.int64)
    out[counts > 0] = hits.distances[hits.offsets[1:][counts > 0] - 1]
    return out
