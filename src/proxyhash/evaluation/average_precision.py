"""Tie-aware average precision in closed form."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from proxyhash.evaluation.counts import TieCounts
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import jit

Scores = NDArray[np.float64]

TIES = ("expected", "best", "worst", "stable")
DENOMINATORS = ("relevant", "capped", "retrieved")


def average_precision(
    counts: TieCounts, top: int | None = None, ties: str = "expected", denominator: str = "relevant"
) -> Scores:
    """Return the average precision of each query (Q,) among its `top` nearest items (None: all).

    `ties`: `expected` averages over all orders of tied items, `best` puts relevant ones first, `worst` last; `stable` is for
    counts of a ranking without ties. `denominator`:
    `relevant` divides by all relevant items, `capped` by at most `top` of them, `retrieved` by the hits inside the top, as
    many scripts do (in expectation, if the cutoff falls into a group of ties). A query without a denominator scores 0.
    """
    if ties not in TIES:
        raise InputError(f"There is no way {ties!r} to treat ties; choose from {', '.join(TIES)}.")
    if denominator not in DENOMINATORS:
        raise InputError(f"There is no denominator {denominator!r}; choose from {', '.join(DENOMINATORS)}.")
    top = counts.max_items if top is None else top
    ties = "expected" if ties == "stable" else ties  # a stable ranking has groups of one item, which have one order
    if denominator == "retrieved":
        return _over_retrieved(_Groups(counts, top), ties)
    relevant = counts.total_relevant
    return ratio(_sums(counts, top, ties), relevant if denominator == "relevant" else np.minimum(relevant, top))


def _sums(counts: TieCounts, top: int, ties: str) -> Scores:
    """Return the sum of precisions at the hits of each query (Q,)."""
    if ties == "expected":  # the usual case, which needs no arrays of groups
        return _expected_sums(counts.items, counts.relevant, top, _harmonic_numbers(counts))
    groups = _Groups(counts, top)
    sums: Scores = (groups.best() if ties == "best" else groups.worst()).sum(axis=1)
    return sums


def _over_retrieved(groups: "_Groups", ties: str) -> Scores:
    if ties == "expected":
        return groups.expected_ratio(groups.expected())
    sums = groups.best() if ties == "best" else groups.worst()
    return ratio(sums.sum(axis=1), groups.hits(ties).sum(axis=1))


def ratio(above: NDArray[np.floating], below: NDArray[np.number]) -> Scores:
    """Return above / below, and 0 where `below` is 0."""
    shares: Scores = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    return shares


def _harmonic_numbers(counts: TieCounts) -> Scores:
    """Return H(0) to H(items)."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, counts.max_items + 1))])


@jit(nogil=True)
def _expected_sums(items: NDArray[np.int64], relevant: NDArray[np.int64], top: int, harmonic: Scores) -> Scores:
    """Return the sums (Q,) of `_Groups.expected` over groups, skipping groups without relevant items."""
    sums = np.zeros(len(items))
    for query in range(len(items)):
        N, R = 0, 0
        for group in range(items.shape[1]):
            n, r = items[query, group], relevant[query, group]
            if r > 0 and top > N:
                m = min(n, top - N)
                reciprocals = harmonic[N + m] - harmonic[N]
                slope = (r - 1) / (n - 1) if n > 1 else 0.0
                sums[query] += r / n * ((R + 1) * reciprocals + slope * (m - (N + 1) * reciprocals))
            N += n
            R += r
    return sums


class _Groups:
    """Groups of n tied items, r of them relevant, with N items and R relevant before; m of the n are inside the top.

    Every sum over ranks is a difference of harmonic numbers H: sum_{t=1..m} 1 / (N + t) = H(N + m) - H(N).
    """

    def __init__(self, counts: TieCounts, top: int) -> None:
        """Compute the arrays (Q, bins)."""
        self.n, self.r = counts.items, counts.relevant
        self.N, self.R = np.cumsum(self.n, axis=1) - self.n, np.cumsum(self.r, axis=1) - self.r
        self.m = np.clip(top - self.N, 0, self.n)
        self.harmonic = _harmonic_numbers(counts)

    def expected(self) -> Scores:
        """Sum_{t=1..m} (r / n) (R + 1 + (t - 1) (r - 1) / (n - 1)) / (N + t): expected precision at hits."""
        return _expected_sum(self.n, self.r, self.N, self.R, self.m, self._reciprocals(self.N, self.m))

    def best(self) -> Scores:
        """Hits at the first r places: sum_{j} (R + j) / (N + j)."""
        hits = self.hits("best")
        return hits - (self.N - self.R) * self._reciprocals(self.N, hits)

    def worst(self) -> Scores:
        """Hits at the last r places: sum_{j} (R + j) / (N + n - r + j)."""
        hits, start = self.hits("worst"), self.N + self.n - self.r
        return hits - (start - self.R) * self._reciprocals(start, hits)

    def hits(self, ties: str) -> NDArray[np.int64]:
        """Relevant items of each group inside the top, placed first (`best`) or last (`worst`)."""
        inside: NDArray[np.int64]
        inside = np.minimum(self.r, self.m) if ties == "best" else np.maximum(self.m - (self.n - self.r), 0)
        return inside

    def expected_ratio(self, sums: Scores) -> Scores:
        """Return E[sum of precisions / hits inside the top] per query, over the hypergeometric hits of the cut group."""
        whole = self.m == self.n
        before, hits_before = (sums * whole).sum(axis=1), (self.r * whole).sum(axis=1)
        result = ratio(before, hits_before)
        cut = (self.m > 0) & ~whole
        for query, group in zip(*np.nonzero(cut), strict=True):
            n, r, m = (int(values[query, group]) for values in (self.n, self.r, self.m))
            hits = np.arange(max(0, m - (n - r)), min(r, m) + 1)
            chance = np.exp(_log_choose(r, hits) + _log_choose(n - r, m - hits) - _log_choose(n, m))
            start, found = self.N[query, group], self.R[query, group]
            harmonic = self.harmonic[start + m] - self.harmonic[start]
            sums_within = _expected_sum(np.full(len(hits), m), hits, start, found, m, harmonic)
            result[query] = chance @ ratio(before[query] + sums_within, hits_before[query] + hits)
        return result

    def _reciprocals(self, start: NDArray[np.int64], count: NDArray[np.int64]) -> Scores:
        reciprocals: Scores = self.harmonic[np.minimum(start + count, len(self.harmonic) - 1)] - self.harmonic[start]
        return reciprocals


def _expected_sum(n: Any, r: Any, N: Any, R: Any, m: Any, harmonic: Any) -> Scores:
    share = np.divide(r, n, out=np.zeros(np.shape(n)), where=n > 0)
    slope = np.divide(r - 1, n - 1, out=np.zeros(np.shape(n)), where=n > 1)
    sums: Scores = share * ((R + 1) * harmonic + slope * (m - (N + 1) * harmonic))
    return sums


def _log_choose(n: int, k: NDArray[np.int64] | int) -> Scores:
    result: Scores = gammaln(n + 1) - gammaln(np.add(k, 1)) - gammaln(n - np.asarray(k) + 1)
    return result
