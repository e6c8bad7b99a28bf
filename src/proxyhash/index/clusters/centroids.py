"""Centroids of an index: its proxies, and more of them from a sample of its codes; none if they would not help.

More centroids make clusters tighter, which leaves fewer codes to compare. From about half the square root of the number of
codes on, comparing the centroids costs more than that. New centroids are drawn by k-means++ and refined by k-means, both in
Hamming space.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes import hamming_distances, top_k
from proxyhash.codes.bits import Packed, to_words
from proxyhash.codes.search import parallel_over_queries
from proxyhash.index.clusters import layout_kernels
from proxyhash.index.item_ids import ClusterIds
from proxyhash.utils.random import generator

MIN_CODES_FOR_CLUSTERS = 65_536  # fewer codes are scanned in the time that comparing the centroids takes
RECLUSTER_GROWTH = 8  # an index that grew by this factor chooses its centroids again
SAMPLE_SIZE = 60_000  # codes that centroids are chosen from
MAX_CLUSTERS = 1024
MAX_SCAN_FRACTION = 0.25  # of all codes that a query compares; above it, a flat scan is as fast
_DRAWN_AT_ONCE = 64  # centroids drawn before the distances are computed again
_ITERATIONS = 4  # of k-means
_QUERIES = 64  # codes of the sample that estimate the scan fraction
_CHUNK = 8192  # codes that a thread assigns at a time


@dataclass(frozen=True, eq=False)
class Centroids:
    """Chosen centroids (C, bytes), or None, and the estimated fraction of all codes that a query compares."""

    codes: Packed | None
    scan_fraction: float


def choose_centroids(sample: Packed, items: int, start: Packed | None, seed: int = 0) -> Centroids:
    """Return centroids for an index of `items` codes, given a `sample` (n, bytes) of them and the first ones in `start`."""
    count = min(MAX_CLUSTERS, 2 ** int(np.log2(max(2.0, np.sqrt(items) / 2))), len(sample) // 4)
    centroids = _refine(sample, _draw(sample, count, start, seed))
    fraction = scan_fraction(sample, centroids, seed)
    return Centroids(centroids if fraction <= MAX_SCAN_FRACTION else None, fraction)


def scan_fraction(sample: Packed, centroids: Packed, seed: int = 0) -> float:
    """Estimate the fraction of the codes that the triangle inequality leaves, for queries distributed like the codes.

    The nearest other code of the sample is at least as far as the tenth nearest of all codes, so the estimate favors the
    flat scan.
    """
    chosen = generator(seed, "queries").choice(len(sample), min(_QUERIES, len(sample)), replace=False)
    limit = top_k(sample[chosen], sample, 2).distances[:, -1].astype(np.int64)
    to_own, own = _nearest(sample, centroids)
    shells = np.zeros((len(centroids), 8 * sample.shape[1] + 1), np.int64)
    np.add.at(shells, (own, to_own), 1)
    bounds = np.abs(np.arange(shells.shape[1]) - hamming_distances(sample[chosen], centroids)[:, :, None].astype(np.int64))
    return float((shells * (bounds <= limit[:, None, None])).sum() / (len(chosen) * len(sample)))


def assign_clusters(codes: Packed, centroids: Packed | None) -> ClusterIds:
    """Return the nearest centroid of each code (n,); without centroids, all codes are in cluster 0."""
    clusters = np.zeros(len(codes), np.uint16)
    if centroids is not None and len(codes):
        items, c = to_words(codes), np.ascontiguousarray(to_words(centroids).T)
        chunks = -(-len(codes) // _CHUNK)

        def work(rows: slice) -> None:
            part = slice(rows.start * _CHUNK, min(rows.stop * _CHUNK, len(codes)))
            layout_kernels.nearest_centroids(items[:, part], c, clusters[part])

        parallel_over_queries(chunks, None, work)
    return clusters


def _draw(sample: Packed, count: int, start: Packed | None, seed: int) -> Packed:
    """Draw centroids from the sample by k-means++: with a probability that grows as the squared distance to the others."""
    random = generator(seed, "centres")
    centroids = sample[random.choice(len(sample), 1)] if start is None or not len(start) else start[:count]
    nearest = top_k(sample, centroids, 1).distances[:, 0].astype(np.float64)
    while len(centroids) < count and nearest.any():
        new = random.choice(len(sample), min(_DRAWN_AT_ONCE, count - len(centroids)), p=nearest**2 / (nearest**2).sum())
        centroids = np.concatenate([centroids, sample[new]])
        nearest = np.minimum(nearest, top_k(sample, sample[new], 1).distances[:, 0])
    return centroids


def _refine(sample: Packed, centroids: Packed) -> Packed:
    """Move each centroid to the bitwise majority of its codes, a few times: k-means in Hamming space."""
    on = np.unpackbits(sample, axis=1, bitorder="little").astype(np.float32)
    for _ in range(_ITERATIONS):
        own = assign_clusters(sample, centroids)
        order = np.argsort(own, kind="stable")
        used, first = np.unique(own[order], return_index=True)
        counts = np.diff(np.append(first, len(own)))
        share = np.add.reduceat(on[order], first, axis=0) / counts[:, None]
        centroids = centroids.copy()
        centroids[used] = np.packbits(share > 0.5, axis=1, bitorder="little")
    return np.unique(centroids, axis=0)


def _nearest(sample: Packed, centroids: Packed) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the distance to, and the index of, the nearest centroid of each code (n,)."""
    found = top_k(sample, centroids, 1)
    return found.distances[:, 0], found.indices[:, 0]
