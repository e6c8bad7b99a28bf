"""Recall of the exact neighbors of vectors by their codes, which needs no labels."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.data.vectors import VectorRows
from proxyhash.evaluation.metrics import recall_at
from proxyhash.evaluation.neighbors import exact_neighbors
from proxyhash.evaluation.results import Metric
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation
from proxyhash.utils.validation import check_int

NEIGHBORS = 10  # as in most comparisons of vector search
MAX_QUERIES, FOLDS = 1000, 5

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


def code_recall(
    queries: Floats, database: Floats, query_codes: NDArray[np.uint8] | Floats, db_codes: Packed, k: int = NEIGHBORS
) -> Metric:
    """Return the expected share of the k nearest vectors of a query that is among its k nearest codes.

    Parameters
    ----------
    queries, database
        Vectors (Q, width) and (N, width), compared by Euclidean distance; of length 1, they are ranked as by cosine.
    query_codes, db_codes
        Their packed codes (Q, bytes) and (N, bytes); queries may also be tables (Q, M, k), see `codes.adc`.
    k
        Number of neighbors; a smaller database has only its own number.

    Returns
    -------
    Metric
        Mean over queries, and over all orders of tied codes.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> vectors = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], np.float32)
    >>> codes = pack([[1, -1], [1, -1], [1, 1], [1, 1]])
    >>> code_recall(vectors[:1], vectors[1:], codes[:1], codes[1:], k=1).value
    1.0
    """
    k = min(check_int("k", k, 1), len(database))
    nearest = exact_neighbors(queries, VectorRows(database), k, "l2").indices
    is_neighbor = np.zeros((len(database), len(queries)), bool)
    np.put_along_axis(is_neighbor, nearest.T, True, axis=0)
    # Each query has a tag of its own, which its neighbors share.
    metric = recall_at(query_codes, np.eye(len(queries), dtype=bool), db_codes, is_neighbor, k)
    return Metric(f"recall@{k} of exact neighbors [ties expected]", metric.per_query, metric.without_relevant)


def query_folds(count: int, seed: int = 0) -> list[tuple[Indices, Indices]]:
    """Return queries and databases among `count` rows: each fold searches all other rows, so that none finds itself.

    All rows are queries, or `MAX_QUERIES` random ones.

    Examples
    --------
    >>> [(len(queries), len(database)) for queries, database in query_folds(12)]
    [(3, 9), (3, 9), (2, 10), (2, 10), (2, 10)]
    """
    if count < 2:
        raise InputError(f"A search needs at least two vectors, not {count}.")
    queries = permutation(count, seed, "queries")[:MAX_QUERIES]
    folds = np.array_split(queries, min(FOLDS, len(queries)))
    return [(np.sort(fold), np.setdiff1d(np.arange(count), fold)) for fold in folds]
