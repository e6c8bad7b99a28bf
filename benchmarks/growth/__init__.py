"""Growth of the cost of a query with the number of codes: exact clustered search, and faiss's inverted lists.

Codes are generated in parts, so that they are never all in memory beside the structure that holds them. A code has 64 bits,
each flipped from the centroid of its class with probability 3/16: 12 bits, as far as images of CIFAR-100 lie from their
proxies. Items take turns over the classes. Clusters and lists have the centroids of the classes, as proxies are.
"""

import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.clusters.clustered import ClusteredSegment, build_clustered_segment
from proxyhash.index.clusters.segment import Sink
from reporting import Row, timed

PIECE = 1_000_000
QUERIES = 200
K = 10
SIZES = (1_000_000, 3_000_000, 10_000_000)
LARGE = (*SIZES, 30_000_000, 100_000_000)
RULES: dict[str, Callable[[int], int]] = {
    "1,000 classes": lambda _: 1000,
    "a class for each 10,000 codes": lambda items: items // 10_000,
}
Measured = Iterator[tuple[str, Row]]


def growth_rows(*, large: bool) -> Iterator[Row]:
    """Measure each rule at each size, then fit exponents over the sizes."""
    for rule, classes in RULES.items():
        costs: dict[str, list[tuple[float, float]]] = {}
        for items in LARGE if large else SIZES:
            for name, row in _measured(rule, items, classes(items)):
                costs.setdefault(name, []).append((items, row.measured))
                yield row
        for name, points in costs.items():
            exponent = _exponent(points)
            sizes = f"{points[0][0]:,.0f} to {points[-1][0]:,.0f} codes"
            yield Row(f"{rule}: exponent of {name}", exponent, "", True, 0.0, note=f"least squares, {sizes}")


def _measured(rule: str, items: int, classes: int) -> Measured:
    centroids = np.random.default_rng(7).integers(0, 2**64, (classes, 1), dtype=np.uint64)
    random = np.random.default_rng(8)
    queries = centroids[random.integers(0, classes, QUERIES)] ^ _noise(random, QUERIES)[:, None]
    where = f"{rule}, {items:,} codes"
    truth = np.empty((QUERIES, K), np.int64)
    yield from _by_clusters(where, centroids, items, queries, truth)
    gc.collect()  # the clusters are not needed any more, and the lists need their memory
    yield from _by_lists(where, centroids, items, queries, truth)


def _by_clusters(where: str, centroids: Words, items: int, queries: Words, truth: NDArray[np.int64]) -> Measured:
    """Search exactly; `truth` takes the distances (Q, K) that are found."""
    segment, built = timed(_clustered, centroids, items)
    found, compared = segment.nearest(queries, K)
    truth[:] = found.distances.reshape(truth.shape)
    seconds = _seconds(partial(segment.nearest, k=K, threads=1), queries)
    yield "codes compared", Row(f"{where}: codes compared a query, exactly", compared / QUERIES, "", True, built)
    yield "ms of exact search", Row(f"{where}: ms a query, exactly, one thread", 1000 * seconds, "", True, built)


def _by_lists(where: str, centroids: Words, items: int, queries: Words, truth: NDArray[np.int64]) -> Measured:
    """Look into as few lists, by powers of two, as find 99 % of the nearest."""
    lists, built = timed(_inverted, centroids, items)
    lists.nprobe, recall = 1, 0.0
    while True:
        recall = float((lists.search(queries.view(np.uint8), K)[0] <= truth[:, -1:]).mean())
        if recall >= 0.99 or lists.nprobe >= len(centroids):
            break
        lists.nprobe *= 2
    seconds = _seconds(lambda query: lists.search(query.view(np.uint8), K), queries)
    compared = lists.nprobe * items / len(centroids) + len(centroids)
    note = f"{lists.nprobe} of {len(centroids):,} lists, {100 * recall:.1f} % of the {K} nearest"
    yield "codes compared by IVF", Row(f"{where}: codes and centroids compared by IVF", compared, "", True, built, note=note)
    yield "ms of IVF", Row(f"{where}: ms a query by IVF, one thread", 1000 * seconds, "", True, built, note=note)


def _noise(random: np.random.Generator, count: int) -> NDArray[np.uint64]:
    """Return words whose bits are set with a chance of 3 in 16: 1/2 times 1/2 times 3/4."""
    one, other, third, fourth = random.integers(0, 2**64, (4, count), dtype=np.uint64)
    flips: NDArray[np.uint64] = one & other & (third | fourth)
    return flips


def _pieces(centroids: Words, items: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
    """Yield the classes (n,) and codes (n,) of the items in their order."""
    for first in range(0, items, PIECE):
        random = np.random.default_rng((9, first))
        own = np.arange(first, min(first + PIECE, items)) % len(centroids)
        yield own, centroids[own, 0] ^ _noise(random, len(own))


def _clustered(centroids: Words, items: int) -> ClusteredSegment:
    def feed(sink: Sink) -> None:
        first = 0
        for own, codes in _pieces(centroids, items):
            sink(codes[None], np.arange(first, first + len(own), dtype=np.uint32), own.astype(np.uint16))
            first += len(own)

    sizes = np.full(len(centroids), items // len(centroids), np.int64)
    sizes[: items % len(centroids)] += 1
    return build_clustered_segment(centroids, sizes, feed, items, threads=1)


def _inverted(centroids: Words, items: int) -> Any:
    import faiss

    faiss.omp_set_num_threads(1)
    coarse = faiss.IndexBinaryFlat(64)
    coarse.add(np.ascontiguousarray(centroids).view(np.uint8))
    lists: Any = faiss.IndexBinaryIVF(coarse, 64, len(centroids))
    lists.coarse = coarse  # faiss does not keep it alive
    lists.is_trained = True
    for own, codes in _pieces(centroids, items):
        lists.add_core(len(own), faiss.swig_ptr(codes.view(np.uint8)), None, faiss.swig_ptr(own))
    return lists


def _seconds(search: Any, queries: Words) -> float:
    """Return the seconds of one query among others that come one by one: the median, the machine has other work too."""
    times = []
    for number in range(len(queries)):
        begun = time.perf_counter()
        search(queries[number : number + 1])
        times.append(time.perf_counter() - begun)
    return float(np.median(times))


def _exponent(points: list[tuple[float, float]]) -> float:
    sizes, costs = np.log(np.array(points)).T
    return float(np.polyfit(sizes, costs, 1)[0])
