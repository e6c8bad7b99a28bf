"""NDCG for tags: items that share more tags should come first. Tied items get the mean of their ranks' discounts."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.search import check_words, hamming_distances
from proxyhash.evaluation.relevance import relevance
from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

_MAX_PAIRS = 4_000_000


def ndcg(
    query_codes: ArrayLike, query_tags: ArrayLike, db_codes: ArrayLike, db_tags: ArrayLike, top: int | None = None
) -> Metric:
    """Return the normalized discounted cumulative gain among the `top` nearest, in expectation over the order of ties.

    An item that shares t tags with the query gains 2^t - 1, divided by log2(rank + 1).
    """
    q, db = check_words(query_codes, db_codes)
    labels = relevance(query_tags, db_tags, len(q), db.shape[1])
    if labels.query_tags is None or labels.database_tags is None:
        raise InputError("NDCG needs tags: matrices (items, tags) of 0 and 1.")
    cutoff = db.shape[1] if top is None else min(check_int("top", top, minimum=1), db.shape[1])
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, cutoff + 2)))])
    scores, no_relevant = np.zeros(len(q)), 0
    packed = np.asarray(query_codes)
    size = max(1, _MAX_PAIRS // db.shape[1])
    for first in range(0, len(q), size):
        shared = sum(
            np.bitwise_count(labels.query_tags[first : first + size, part, None] & items).astype(np.int64)
            for part, items in enumerate(labels.database_tags)
        )
        near = hamming_distances(packed[first : first + size], db_codes)
        for row, (gains, distance) in enumerate(zip(2.0 ** np.asarray(shared) - 1, near, strict=True), start=first):
            ideal = _discounted(np.sort(gains)[::-1], discounts)
            no_relevant += ideal == 0
            scores[row] = _expected(gains, distance, discounts) / ideal if ideal else 0.0
    name = "NDCG" if top is None else f"NDCG@{top}"
    return Metric(f"{name} [ties expected]", scores, int(no_relevant))


def _discounted(gains: NDArray[np.float64], discounts: NDArray[np.float64]) -> float:
    """Sum gain times discount over the ranks inside the cutoff; `discounts` are cumulative."""
    return float(gains[: len(discounts) - 1] @ np.diff(discounts))


def _expected(gains: NDArray[np.float64], distance: NDArray[np.int16], discounts: NDArray[np.float64]) -> float:
    """Give each group of tied items its mean gain times the discounts of its ranks."""
    items = np.bincount(distance)
    total = np.bincount(distance, weights=gains)
    ends = np.minimum(np.cumsum(items), len(discounts) - 1)
    starts = np.minimum(np.cumsum(items) - items, len(discounts) - 1)
    mean = np.divide(total, items, out=np.zeros(len(items)), where=items > 0)
    return float(mean @ (discounts[ends] - discounts[starts]))
