"""Exact nearest neighbors of vectors, and the share of them that other distances find."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.vectors import VectorRows
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.registry import suggest
from proxyhash.utils.validation import check_int

METRICS = ("cosine", "l2", "ip")
"""Exact distances of vectors: angle, Euclidean distance, and inner product (the largest is nearest)."""

TOLERANCE = 1e-6  # relative; exact distances that differ less are equal, because products of float32 round

Floats = NDArray[np.float32]


def check_metric(metric: str) -> str:
    """Return the name of a metric; an unknown one is an error."""
    if metric not in METRICS:
        raise InputError(f"There is no metric {metric!r}; {suggest(metric, METRICS)}")
    return metric


@dataclass(frozen=True, eq=False)
class ExactNeighbors:
    """Nearest items of each query by exact distance, the nearest first, ties by row.

    Parameters
    ----------
    indices
        Rows of the database (Q, n).
    distances
        Their distances (Q, n), less a term that depends on the query only.
    """

    indices: NDArray[np.int64]
    distances: Floats

    def __len__(self) -> int:
        """Return Q."""
        return len(self.indices)

    def __getitem__(self, rows: slice) -> "ExactNeighbors":
        """Return the neighbors of some queries."""
        return ExactNeighbors(self.indices[rows], self.distances[rows])

    def within(self, k: int) -> NDArray[np.bool_]:
        """Return which of the n items are as near as the k-th, (Q, n), up to the rounding of float32.

        Of items that are equally near, such as duplicates, more than k may be.
        """
        limit = self.distances[:, k - 1, None]
        near: NDArray[np.bool_] = self.distances <= limit + TOLERANCE * np.abs(limit)
        return near


def exact_neighbors(
    queries: Floats, database: VectorRows, k: int, metric: str = "cosine", *, progress: Progress = no_progress
) -> ExactNeighbors:
    """Return the exact nearest neighbors of queries, from products of float32 with one chunk of the database at a time.

    Parameters
    ----------
    queries
        Vectors (Q, width).
    database
        Vectors (N, width), read in chunks.
    k
        Number of neighbors, at most N.
    metric
        `cosine`, `l2` or `ip`. Queries and database must have length 1 for `cosine`.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    ExactNeighbors
        The k nearest items of each query.

    Examples
    --------
    >>> database = VectorRows(np.array([[0.0, 1.0], [1.0, 0.0], [0.6, 0.8]]))
    >>> exact_neighbors(np.array([[1.0, 0.0]], np.float32), database, 2, "l2").indices.tolist()
    [[1, 2]]
    """
    check_metric(metric)
    check_int("k", k, 1, len(database))
    best = np.full((len(queries), k), np.iinfo(np.int64).max)
    for part in database.slices():
        vectors = database[part]
        offsets = np.einsum("ij,ij->i", vectors, vectors) if metric == "l2" else np.zeros(len(vectors), np.float32)
        found = _sort_keys(asymmetric_distances(queries, vectors, offsets), part.start)
        if part.start:  # most items are farther than the k best so far
            found = np.partition(found, min(k, found.shape[1]) - 1, axis=1)[:, :k]
        best = np.partition(np.concatenate([best, found], axis=1), k - 1, axis=1)[:, :k]
        progress("exact neighbors", part.stop / len(database))
    best.sort(axis=1)
    return ExactNeighbors(best & 0xFFFFFFFF, _distances_of(best))


def asymmetric_distances(queries: Floats, vectors: Floats, offsets: Floats) -> Floats:
    """Return offsets - 2 q.x (Q, N): squared Euclidean distances less ||q||^2, if the offsets (N,) are ||x||^2."""
    distances: Floats = queries @ vectors.T
    distances *= -2
    distances += offsets
    return distances


def _sort_keys(distances: Floats, first: int) -> NDArray[np.int64]:
    """Return integers in the order of distances (Q, n) and then rows: the bits of a distance, and below them its row.

    The bits of positive floats are in order, and those of negative floats in reverse order.
    """
    bits = (distances + np.float32(0)).view(np.int32)  # -0 becomes 0
    return (_reverse_negative(bits).astype(np.int64) << 32) | np.arange(first, first + distances.shape[1])


def _distances_of(keys: NDArray[np.int64]) -> Floats:
    """Return the distances that `_sort_keys` was given."""
    return _reverse_negative((keys >> 32).astype(np.int32)).view(np.float32)


def _reverse_negative(bits: NDArray[np.int32]) -> NDArray[np.int32]:
    reversed_bits: NDArray[np.int32] = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return reversed_bits


def neighbor_recall(distances: NDArray[np.number], neighbors: ExactNeighbors, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return the expected share of exact neighbors among the k nearest by `distances`, over all orders of tied items.

    An item is an exact neighbor if it is as near as the k-th by exact distance.

    Parameters
    ----------
    distances
        Distances (Q, N) of the items by codes.
    neighbors
        Exact neighbors, at least as many as the largest k.
    ks
        Values of k.

    Returns
    -------
    ndarray of float64
        Recall (Q, len(ks)).

    Examples
    --------
    >>> distances = np.array([[3, 1, 1, 2]])  # items 1 and 2 are tied
    >>> exact = ExactNeighbors(np.array([[2, 3]]), np.array([[0.0, 0.5]], np.float32))
    >>> neighbor_recall(distances, exact, [1, 2]).tolist()  # item 2 is first half of the time
    [[0.5, 0.5]]
    """
    limits = np.partition(distances, [k - 1 for k in ks], axis=1)
    near = np.take_along_axis(distances, neighbors.indices, axis=1)
    recall = np.empty((len(distances), len(ks)))
    for column, k in enumerate(ks):
        limit = limits[:, k - 1, None]  # the distance of the k-th item: nearer items are in, and some of its ties
        nearer, tied = (distances < limit).sum(axis=1), (distances == limit).sum(axis=1)
        exact = neighbors.within(k)
        hits, tied_hits = (exact & (near < limit)).sum(axis=1), (exact & (near == limit)).sum(axis=1)
        recall[:, column] = (hits + tied_hits * (k - nearer) / tied) / k
    return recall
