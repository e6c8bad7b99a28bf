"""Product quantization (Jegou, Douze and Schmid 2011): vectors in M parts, each replaced by the nearest of k centroids.

Codebooks are (M, k, d). Vectors (N, D) are padded with zeros to M d values, so that any D can be cut into M parts.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
CHUNK_SIZE = 16_384  # vectors whose distances to all centroids are in memory at a time
SAMPLES_PER_CENTROID = 100  # more vectors are subsampled before k-means


def learn_codebooks(vectors: Floats, start: Floats, random: np.random.Generator, iterations: int = 10) -> Floats:
    """Return codebooks (M, k, d) after iterations of k-means in each part, which never increase the error.

    A part of `start` (M, k, d) that is all zeros is initialized with random vectors.
    """
    most = SAMPLES_PER_CENTROID * start.shape[1]
    chosen = vectors if len(vectors) <= most else vectors[np.sort(random.choice(len(vectors), most, replace=False))]
    learned = []
    for part, centroids in zip(split_subvectors(chosen, len(start), start.shape[2]), start, strict=True):
        drawn = part[random.choice(len(part), len(centroids), replace=len(part) < len(centroids))]
        learned.append(_k_means(part, centroids if centroids.any() else drawn, iterations))
    return np.stack(learned)


def split_subvectors(vectors: Floats, parts: int, each: int) -> Floats:
    """Return vectors (N, D) as (M, N, d), padded with zeros."""
    padded = np.zeros((len(vectors), parts * each), np.float32)
    padded[:, : vectors.shape[1]] = vectors
    return np.ascontiguousarray(padded.reshape(len(vectors), parts, each).transpose(1, 0, 2))


def distance_tables(vectors: Floats, codebooks: Floats) -> Floats:
    """Return the ADC tables ||z_m - c_mk||^2 (N, M, k) of query vectors."""
    parts = split_subvectors(vectors, len(codebooks), codebooks.shape[2])
    return np.stack([_distances(part, centroids) for part, centroids in zip(parts, codebooks, strict=True)], axis=1)


def quantize(vectors: Floats, codebooks: Floats) -> NDArray[np.int64]:
    """Return the index of the nearest centroid of each part (N, M)."""
    parts = split_subvectors(vectors, len(codebooks), codebooks.shape[2])
    return np.stack([_nearest(part, centroids)[0] for part, centroids in zip(parts, codebooks, strict=True)], axis=1)


def reconstruct(subcodes: NDArray[np.integer], codebooks: Floats, width: int) -> Floats:
    """Return the vectors (N, width) that are encoded by `subcodes` (N, M)."""
    parts = [centroids[subcodes[:, part]] for part, centroids in enumerate(codebooks)]
    return np.concatenate(parts, axis=1)[:, :width]


def _k_means(points: Floats, centroids: Floats, iterations: int) -> Floats:
    """Return centroids (k, d) after Lloyd iterations; an empty cluster moves to a point far from all centroids."""
    centroids = centroids.copy()
    for _ in range(iterations):
        nearest, errors = _nearest(points, centroids)
        counts = np.bincount(nearest, minlength=len(centroids))
        # Sums by coordinate equal those of np.add.at, which takes as long as the distances.
        sums = np.stack([np.bincount(nearest, values, len(centroids)) for values in points.T], axis=1)
        used = counts > 0
        centroids[used] = sums[used] / counts[used, None]
        idle = np.flatnonzero(~used)
        farthest = np.argsort(-errors, kind="stable")[: len(idle)]
        centroids[idle[: len(farthest)]] = points[farthest]
    return centroids


def _nearest(points: Floats, centroids: Floats) -> tuple[NDArray[np.int64], Floats]:
    nearest, errors = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for first in range(0, len(points), CHUNK_SIZE):
        distances = _distances(points[first : first + CHUNK_SIZE], centroids)
        nearest.append(distances.argmin(1))
        errors.append(distances.min(1))
    return np.concatenate(nearest), np.concatenate(errors)


def _distances(points: Floats, centroids: Floats) -> Floats:
    squares = np.square(points).sum(1)[:, None] + np.square(centroids).sum(1) - 2 * points @ centroids.T
    distances: Floats = np.maximum(squares, 0)  # rounding may give a negative value for equal vectors
    return distances
