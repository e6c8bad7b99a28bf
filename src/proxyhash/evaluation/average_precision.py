"""Tie-aware average precision in closed form."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.cutoff import check_denominator
from proxyhash.evaluation.counts import TieCounts
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import jit

Scores = NDArray[np.float64]

TIES = ("expected", "best", "worst", "stable")
_NEGLIGIBLE = 1e-30  # weight of a number of hits, relative to the most likely number


def average_precision(
    counts: TieCounts, top: int | None = None, ties: str = "expected", denominator: str = "relevant"
) -> Scores:
    """Return the average precision of each query (Q,) among its `top` nearest items (None: all).

    `ties`: `expected` averages over all orders of tied items, `best` puts relevant ones first, `worst` last; `stable` is for
    counts of a ranking without ties. `denominator`:
    `relevant` divides by all R relevant items, `capped` by min(R, top), `retrieved` by the relevant items inside the top, as
    many scripts do (see `_expected_ratios`). A query without a denominator scores 0.
    """
    if ties not in TIES:
        raise InputError(f"There is no way {ties!r} to treat ties; choose from {', '.join(TIES)}.")
    check_denominator(denominator)
    top = counts.max_items if top is None else top
    if ties in ("expected", "stable"):  # a stable ranking has groups of one item, which have one order
        kernel = _expected_ratios if denominator == "retrieved" else _expected_sums
        sums: Scores = kernel(counts.items, counts.relevant, top, _harmonic_numbers(counts))
        return sums if denominator == "retrieved" else ratio(sums, _fixed_denominator(counts, top, denominator))
    groups = _Groups(counts, top)
    sums = (groups.best() if ties == "best" else groups.worst()).sum(axis=1)
    if denominator == "retrieved":
        return ratio(sums, groups.hits(ties).sum(axis=1))
    return ratio(sums, _fixed_denominator(counts, top, denominator))


def _fixed_denominator(counts: TieCounts, top: int, denominator: str) -> NDArray[np.int64]:
    """Return the denominators (Q,) that do not depend on the ranking."""
    relevant = counts.total_relevant
    return relevant if denominator == "relevant" else np.minimum(relevant, top)


def ratio(above: NDArray[np.floating], below: NDArray[np.number]) -> Scores:
    """Return above / below, and 0 where `below` is 0."""
    shares: Scores = np.divide(above, below, out=np.zeros(len(above)), where=below > 0)
    return shares


def _harmonic_numbers(counts: TieCounts) -> Scores:
    """Return H(0) to H(items)."""
    return np.concatenate([[0.0], np.cumsum(1 / np.arange(1, counts.max_items + 1))])


@jit(nogil=True)
def _group_sum(n: int, r: int, N: int, R: int, m: int, harmonic: Scores) -> float:
    """Return the expected sum of precisions at the hits among the first m places of a group.

    The group has n items, r of them relevant, in random order; N items and R relevant ones come before it. At place t there
    is a hit with probability r / n, and then (t - 1) (r - 1) / (n - 1) hits are expected before it in the group:
    sum_{t=1..m} (r / n) (R + 1 + (t - 1) (r - 1) / (n - 1)) / (N + t), where sum_{t=1..m} 1 / (N + t) = H(N + m) - H(N).
    """
    reciprocals = harmonic[N + m] - harmonic[N]
    slope = (r - 1) / (n - 1) if n > 1 else 0.0
    return r / n * ((R + 1) * reciprocals + slope * (m - (N + 1) * reciprocals))  # type: ignore[no-any-return]


@jit(nogil=True)
def _expected_sums(items: NDArray[np.int64], relevant: NDArray[np.int64], top: int, harmonic: Scores) -> Scores:
    """Return the expected sums of precisions (Q,) at the hits inside the top, skipping groups without relevant items."""
    sums = np.zeros(len(items))
    for query in range(len(items)):
        N, R = 0, 0
        for group in range(items.shape[1]):
            n, r = items[query, group], relevant[query, group]
            if r > 0 and top > N:
                sums[query] += _group_sum(n, r, N, R, min(n, top - N), harmonic)
            N += n
            R += r
    return sums


@jit(nogil=True)
def _expected_ratios(items: NDArray[np.int64], relevant: NDArray[np.int64], top: int, harmonic: Scores) -> Scores:
    """Return E[sum of precisions at the hits inside the top / number of these hits] (Q,).

    Groups before the cutoff are inside as a whole. They hold R hits whatever their order, and their sum of precisions has
    the mean S. The cutoff leaves m of the n items of one group inside, and h of its r relevant items are among them: h is
    hypergeometric, P(h) = C(r, h) C(n - r, m - h) / C(n, m). Given h, all orders of these m items are equally likely, so
    that their sum of precisions has the mean of a whole group of m items with h hits. The denominator R + h is then fixed:

        E = sum_h P(h) (S + group_sum(m, h)) / (R + h),

    with 0 for R + h = 0. Weights proportional to P(h) follow from P(h + 1) / P(h) = (r - h) (m - h) / ((h + 1) (n - r - m +
    h + 1)), outwards from the most likely h, which takes no factorials; P falls faster than geometrically there.
    """
    ratios = np.zeros(len(items))
    for query in range(len(items)):
        N, R, sums, is_cut = 0, 0, 0.0, False
        for group in range(items.shape[1]):
            n, r = items[query, group], relevant[query, group]
            if N + n > top:
                is_cut = top > N
                if is_cut:
                    ratios[query] = _cut_ratio(n, r, N, R, top - N, sums, harmonic)
                break
            if r > 0:
                sums += _group_sum(n, r, N, R, n, harmonic)
            N += n
            R += r
        if R > 0 and not is_cut:
            ratios[query] = sums / R
    return ratios


@jit(nogil=True)
def _cut_ratio(n: int, r: int, N: int, R: int, m: int, sums: float, harmonic: Scores) -> float:
    """Return the sum over h of `_expected_ratios` for a group of n items, r of them relevant, with m inside the top."""
    low, high = max(0, m - (n - r)), min(r, m)
    likely = min(max((m + 1) * (r + 1) // (n + 2), low), high)
    total, value = 0.0, 0.0
    for step in (1, -1):
        weight, h = 1.0, likely
        while low <= h <= high and weight > _NEGLIGIBLE:
            if step == 1 or h < likely:  # once for the most likely
                total += weight
                if R + h > 0:
                    value += weight * (sums + _group_sum(m, h, N, R, m, harmonic)) / (R + h)
            if step == 1:
                weight *= (r - h) * (m - h) / ((h + 1.0) * (n - r - m + h + 1))
            else:
                weight *= h * (n - r - m + h) / ((r - h + 1.0) * (m - h + 1))
            h += step
    return value / total


class _Groups:
    """Groups of n tied items, r of them relevant, with N items and R relevant before; m of the n are inside the top."""

    def __init__(self, counts: TieCounts, top: int) -> None:
        """Compute the arrays (Q, bins)."""
        self.n, self.r = counts.items, counts.relevant
        self.N, self.R = np.cumsum(self.n, axis=1) - self.n, np.cumsum(self.r, axis=1) - self.r
        self.m = np.clip(top - self.N, 0, self.n)
        self.harmonic = _harmonic_numbers(counts)

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

    def _reciprocals(self, start: NDArray[np.int64], count: NDArray[np.int64]) -> Scores:
        reciprocals: Scores = self.harmonic[np.minimum(start + count, len(self.harmonic) - 1)] - self.harmonic[start]
        return reciprocals
