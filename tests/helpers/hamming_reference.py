"""Hamming search in plain NumPy, to which the kernels are compared."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed


def distances(queries: Packed, database: Packed) -> NDArray[np.int16]:
    """Return Hamming distances (Q, N)."""
    counts: NDArray[np.int16] = np.bitwise_count(queries[:, None] ^ database).sum(axis=2, dtype=np.int16)
    return counts


def histograms(queries: Packed, database: Packed) -> NDArray[np.int64]:
    """Return the number of items at each distance, (Q, 8 * bytes + 1)."""
    bins = 8 * queries.shape[1] + 1
    return np.array([np.bincount(row, minlength=bins) for row in distances(queries, database)]).reshape(-1, bins)


def top_k(queries: Packed, database: Packed, k: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return distances and indices (Q, min(k, N)) of the nearest items, ties by position."""
    all_distances = distances(queries, database)
    order = np.argsort(all_distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(all_distances, order, axis=1), order


def range_search(queries: Packed, database: Packed, radius: int) -> list[tuple[NDArray[np.int16], NDArray[np.int64]]]:
    """Return distances and indices of all items within `radius` of each query, nearest first, ties by position."""
    found = []
    for row in distances(queries, database):
        inside = np.flatnonzero(row <= radius)
        order = inside[np.argsort(row[inside], kind="stable")]
        found.append((row[order], order))
    return found
