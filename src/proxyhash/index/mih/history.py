"""History of the distances at which queries found their k-th code, and the radius that it suggests to try."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import Int64s

MEMORY = 256  # queries after which an observation has lost most of its weight
MAX_WASTE = 0.05  # share of the time of a scan that queries may lose on average before they are scanned


class DistanceHistory:
    """Weights of the k-th distances of the latest queries, (bits + 2,); the last one is that of queries given up."""

    def __init__(self, bits: int) -> None:
        self.weights = np.zeros(bits + 2)

    def add(self, distances: Int64s) -> None:
        """Add the k-th distances (Q,) of some queries; bits + 1 for those that were given up."""
        self.weights *= max(0.0, 1 - len(distances) / MEMORY)
        self.weights += np.bincount(distances[-MEMORY:], minlength=len(self.weights))

    def resolve(self, distances: Int64s) -> None:
        """Add the k-th distances (Q,) of queries that were given up before, and then scanned."""
        counts = np.bincount(distances, minlength=len(self.weights))
        counts = counts * min(1.0, self.weights[-1] / max(1, len(distances)))
        self.weights[-1] -= counts.sum()
        self.weights += counts

    def choose(self, seconds: NDArray[np.float64], scan: float) -> tuple[int | None, float]:
        """Return the radius up to which to search before a query is scanned (None: scan at once), and the expected time.

        `seconds` (bits + 1,) is the time of a query by radius, `scan` that of scanning. The radius has the least expected
        time for queries like the latest ones. What those lose that are scanned in the end is at most `MAX_WASTE` of a scan
        on average. Without any history, it is at most so much for each.
        """
        total = self.weights.sum()
        shares = self.weights[:-1] / max(total, 1e-9)
        failures = np.maximum(0.0, 1 - np.cumsum(shares))
        expected = np.cumsum(shares * seconds) + failures * (seconds + scan)
        expected[failures * seconds > MAX_WASTE * scan] = np.inf
        if not total:
            tried = int(np.count_nonzero(np.isfinite(expected)))  # the first ones, because times grow with the radius
            return (tried - 1 if tried else None), scan
        best = int(np.argmin(expected))
        return (best, float(expected[best])) if expected[best] < scan else (None, scan)
