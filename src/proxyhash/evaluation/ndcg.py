"""Tie-aware NDCG for tags: tied items share the mean discount of their ranks."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.search import check_words, hamming_distances
from proxyhash.evaluation.relevance import TagRelevance, relevance
from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

_MAX_PAIRS = 4_000_000


def ndcg(
    query_codes: ArrayLike, query_tags: ArrayLike, db_codes: ArrayLike, db_tags: ArrayLike, top: int | None = None
) -> Metric:
    """Return the normalized discounted cumulative gain, expected over the order of tied items.

    An item that shares t tags with the query gains 2^t - 1, divided by log2(rank + 1).

    Parameters
    ----------
    query_codes, db_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_tags, db_tags
        Matrices (Q, T) and (N, T) of 0 and 1.
    top
        Number of nearest items that count; by default all.

    Returns
    -------
    Metric
        Mean over queries; a query without a relevant item scores 0.

    Raises
    ------
    InputError
        If labels are classes instead of tags.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> ndcg(pack([[1, 1]]), [[1, 0]], pack([[1, 1], [-1, -1]]), [[1, 0], [0, 1]]).value
    1.0
    """
    q, db = check_words(query_codes, db_codes)
    labels = relevance(query_tags, db_tags, len(q), db.shape[1])
    if not isinstance(labels, TagRelevance):
        raise InputError("NDCG needs tags: matrices (items, tags) of 0 and 1.")
    cutoff = db.shape[1] if top is None else min(check_int("top", top, minimum=1), db.shape[1])
    discounts = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, cutoff + 2)))])
    scores, no_relevant = np.zeros(len(q)), 0
    packed = np.asarray(query_codes)
    size = max(1, _MAX_PAIRS // db.shape[1])
    for first in range(0, len(q), size):
        shared = sum(
            np.bitwise_count(labels.query[first : first + size, part, None] & items).astype(np.int64)
            for part, items in enumerate(labels.database)
        )
        near = hamming_distances(packed[first : first + size], db_codes)
        for row, (gains, distance) in enumerate(zip(2.0 ** np.asarray(shared) - 1, near, strict=True), start=first):
            ideal = _discounted(np.sort(gains)[::-1], discounts)
            no_relevant += ideal == 0
            scores[row] = _expected(gains, distance, discounts) / ideal if ideal else 0.0
    name = "NDCG" if top is None else f"NDCG@{top}"
    return Metric(f"{name} [ties expected]", scores, int(no_relevant))


def _discounted(gains: NDArray[np.float64], discounts: NDArray[np.float64]) -> float:
    """Return the sum of gain times discount over the ranks up to the cutoff; `discounts` are cumulative."""
    return float(gains[: len(discounts) - 1] @ np.diff(discounts))


def _expected(gains: NDArray[np.float64], distance: NDArray[np.int16], discounts: NDArray[np.float64]) -> float:
    """Return the sum over groups of tied items of their mean gain times the discounts of their ranks."""
    items = np.bincount(distance)
    total = np.bincount(distance, weights=gains)
    ends = np.minimum(np.cumsum(items), len(discounts) - 1)
    starts = np.minimum(np.cumsum(items) - items, len(discounts) - 1)
    mean = np.divide(total, items, out=np.zeros(len(items)), where=items > 0)
    return float(mean @ (discounts[ends] - discounts[starts]))
