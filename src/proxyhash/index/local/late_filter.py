"""Filters that are evaluated after a search, only for the items that it found."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.hits import Hits, keep_best
from proxyhash.index.mih.request import Request
from proxyhash.index.where.conditions import Condition

_SAMPLE = 2048  # slots by which the share is estimated
_DEVIATIONS = 4.0  # standard deviations more than the share suggests, so that seldom too few are left


@dataclass(frozen=True, eq=False)
class LateFilter:
    """A filter of a segment that keeps about a `share` of its slots: those that meet a `condition`."""

    segment: Segment
    condition: Condition
    share: float

    def search(self, request: Request, search: Callable[[Request], Hits]) -> Hits:
        """Return the hits of a request that the filter keeps.

        More items than wanted are searched for. If too few of them are kept for a query, the filter is evaluated for all
        slots, and these are searched again.
        """
        if request.k is None:
            return self._keep(search(request))
        dropped = 1 - self.share
        spare = _DEVIATIONS * math.sqrt(request.k * dropped) + _DEVIATIONS**2 * dropped / 2
        k = min(len(self.segment), 1 + math.ceil((request.k + spare) / self.share))
        kept = self._keep(search(replace(request, k=k)))
        if k < len(self.segment) and (np.diff(kept.offsets) < request.k).any():
            return search(replace(request, allowed=self.mask(request.threads)))
        return keep_best(kept, request.k)

    def mask(self, threads: int | None = None) -> SlotMask:
        """Return which of all slots the filter keeps."""
        return self.condition.mask(self.segment.num_slots, threads)

    def _keep(self, hits: Hits) -> Hits:
        return hits.take(np.flatnonzero(self.condition.test(hits.slots)))


def estimate_share(condition: Condition, num_slots: int) -> float:
    """Return about which share of so many slots meets a condition."""
    slots = np.linspace(0, num_slots - 1, min(_SAMPLE, num_slots)).astype(np.int64)
    return float(np.mean(condition.test(slots))) if num_slots else 0.0
