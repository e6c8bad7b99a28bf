"""Tie-aware precision and recall: expected values over all orders of tied items."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.evaluation.average_precision import Scores, average_precision, ratio
from proxyhash.evaluation.counts import TieCounts


def expected_hits(counts: TieCounts, k: int) -> Scores:
    """Return the expected number of relevant items among the k nearest (Q,)."""
    before = np.cumsum(counts.items, axis=1) - counts.items
    inside = np.clip(k - before, 0, counts.items)
    share = np.divide(inside, counts.items, out=np.zeros(inside.shape), where=counts.items > 0)
    hits: Scores = (share * counts.relevant).sum(axis=1)
    return hits


def precision_at(counts: TieCounts, k: int) -> Scores:
    """Return the share of relevant items among the k nearest (Q,), or among all if there are fewer than k."""
    return ratio(expected_hits(counts, k), np.minimum(k, counts.items.sum(axis=1)))


def recall_at(counts: TieCounts, k: int) -> Scores:
    """Return the share of all relevant items that is among the k nearest (Q,); 0 where nothing is relevant."""
    return ratio(expected_hits(counts, k), counts.total_relevant)


def truncate_to_radius(counts: TieCounts, radius: int) -> TieCounts:
    """Return the counts of items at most `radius` bits away."""
    return TieCounts(counts.items[:, : radius + 1], counts.relevant[:, : radius + 1])


def precision_within_radius(counts: TieCounts, radius: int) -> Scores:
    """Return the share of relevant items within `radius` (Q,); where nothing is found it is 0."""
    near = truncate_to_radius(counts, radius)
    return ratio(near.relevant.sum(axis=1), near.items.sum(axis=1))


def average_precision_within_radius(counts: TieCounts, radius: int) -> Scores:
    """Return the average precision over the items within `radius` (Q,), divided by the hits there; nothing found is 0."""
    return average_precision(truncate_to_radius(counts, radius), denominator="retrieved")


def precision_recall(counts: TieCounts) -> tuple[Scores, Scores]:
    """Return mean recall and mean precision over queries (bits + 1,) when everything up to each distance is retrieved.

    Queries without a relevant item have no recall and are left out; a query that retrieves no item has precision 1.
    """
    asked = counts.total_relevant > 0
    found: NDArray[np.int64] = np.cumsum(counts.items[asked], axis=1)
    hits: NDArray[np.int64] = np.cumsum(counts.relevant[asked], axis=1)
    precision = np.divide(hits, found, out=np.ones(found.shape), where=found > 0)
    recall = hits / counts.total_relevant[asked, None]
    return recall.mean(axis=0), precision.mean(axis=0)
