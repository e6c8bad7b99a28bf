"""Exact answers about Hamming distances between packed codes; the same on any number of threads."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words, check_packed, to_words
from proxyhash.codes.bitsliced import kernels as bitsliced
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_MAX_QUERIES = 512  # whose results are gathered while the database streams by once
_MAX_CANDIDATES = 10_000_000  # held by a thread while it looks for the nearest: 100 MB


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The nearest items of each query, nearest first, ties by position: `distances` and `indices`, both (Q, k)."""

    distances: NDArray[np.int16]
    indices: NDArray[np.int64]

    def __repr__(self) -> str:
        """Say how many were found and how far they are."""
        span = f"{self.distances.min()} to {self.distances.max()} bits" if self.distances.size else "none"
        return f"Neighbors({self.indices.shape[1]} of each of {len(self.indices):,} queries, {span})"


@dataclass(frozen=True, eq=False)
class RangeSearchResult:
    """All items within a radius: query q's are `indices[starts[q]:starts[q + 1]]`, nearest first; `distances` likewise."""

    starts: NDArray[np.int64]
    distances: NDArray[np.int16]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        """How many queries there were."""
        return len(self.starts) - 1

    def __getitem__(self, query: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Return the distances and the positions found for one query."""
        mine = slice(self.starts[query], self.starts[query + 1])
        return self.distances[mine], self.indices[mine]

    def __repr__(self) -> str:
        """Say how many were found."""
        return f"WithinRadius({len(self.indices):,} items for {len(self):,} queries)"


def hamming_distances(queries: ArrayLike, database: ArrayLike, *, threads: int | None = None) -> NDArray[np.int16]:
    """Return the Hamming distances (Q, N) between packed `queries` (Q, bytes) and `database` (N, bytes)."""
    q, db = check_words(queries, database)
    out = np.empty((len(q), db.shape[1]), np.int16)
    parallel_over_queries(len(q), threads, lambda rows: kernels.distance_rows(q[rows], db, out[rows]))
    return out


def distance_histograms(queries: ArrayLike, database: ArrayLike, *, threads: int | None = None) -> NDArray[np.int64]:
    """Return how many items of `database` (N, bytes) lie at each distance from each of `queries`: (Q, 8 bytes + 1)."""
    q, db = check_words(queries, database)
    out = np.zeros((len(q), 64 * len(db) + 1), np.int64)
    parallel_over_queries(len(q), threads, histogram_adder(q, db, out, np.full(len(q), 64)))
    return out[:, : 8 * np.shape(queries)[1] + 1]


def histogram_adder(q: Words, db: Words, out: NDArray[np.int64], far: NDArray[np.int64]) -> Callable[[slice], None]:
    """Return what adds to some rows of `out` (Q, 64 W + 1) how many of `db` (W, N) lie at each distance from `q` (Q, W).

    Distances beyond `far` (Q,), as it is when rows are added, may be left out.
    """
    if not bitsliced.is_faster(q, db):
        return lambda rows: kernels.histogram_rows(q[rows], db, out[rows])
    parts = bitsliced.split_by_parity(db)

    def add(rows: slice) -> None:
        for part in parts:
            bitsliced.histogram_rows(q[rows], part, far[rows], out[rows])

    return add


def top_k(queries: ArrayLike, database: ArrayLike, k: int, *, threads: int | None = None) -> Neighbors:
    """Return the k nearest items of `database` (N, bytes) for each of `queries` (Q, bytes), ties by position.

    The answer is unique. If the database holds fewer than k items, all of them are returned.
    """
    return top_k_words(*check_words(queries, database), check_int("k", k, minimum=1), threads)


def top_k_words(q: Words, db: Words, k: int, threads: int | None = None) -> Neighbors:
    """Return the same for queries (Q, W) and a database (W, N) of words."""
    k = min(k, db.shape[1])
    near, position = np.empty((len(q), k), np.int16), np.empty((len(q), k), np.int64)

    def search(rows: slice) -> None:
        shape = (rows.stop - rows.start, 2 * k)
        found, places = np.empty(shape, np.int16), np.empty(shape, np.int64)
        nearest = bitsliced.nearest_rows if bitsliced.is_faster(q[rows], db) else kernels.nearest_rows
        nearest(q[rows], db, k, found, places)
        near[rows], position[rows] = found[:, :k], places[:, :k]

    parallel_over_queries(len(q), threads, search, max_queries=_MAX_CANDIDATES // (2 * k))
    return Neighbors(near, position)


def range_search(queries: ArrayLike, database: ArrayLike, radius: int, *, threads: int | None = None) -> RangeSearchResult:
    """Return all items of `database` (N, bytes) at most `radius` bits from each of `queries` (Q, bytes)."""
    return range_search_words(*check_words(queries, database), check_int("radius", radius, minimum=0), threads)


def range_search_words(q: Words, db: Words, radius: int, threads: int | None = None) -> RangeSearchResult:
    """Return the same for queries (Q, W) and a database (W, N) of words."""
    counts, nowhere = np.zeros(len(q), np.int64), (np.empty(0, np.int16), np.empty(0, np.int64))
    parallel_over_queries(
        len(q), threads, lambda rows: kernels.collect_range(q[rows], db, radius, counts[rows], *nowhere, False)
    )
    starts = np.concatenate([[0], np.cumsum(counts)])
    near, position = np.empty(starts[-1], np.int16), np.empty(starts[-1], np.int64)

    def collect(rows: slice) -> None:
        kernels.collect_range(q[rows], db, radius, starts[rows].copy(), near, position, True)
        for row in range(rows.start, rows.stop):
            mine = slice(starts[row], starts[row + 1])
            kernels.sort_by_distance(near[mine], position[mine], counts[row], 64 * len(db) + 1)

    parallel_over_queries(len(q), threads, collect)
    return RangeSearchResult(starts, near, position)


def check_words(queries: ArrayLike, database: ArrayLike) -> tuple[Words, Words]:
    """Return queries (Q, W) and database (W, N) as words."""
    q, db = check_packed("Queries", queries), check_packed("The database", database)
    if q.shape[1] != db.shape[1]:
        raise InputError(f"Queries of {q.shape[1]} bytes cannot be compared with a database of {db.shape[1]} bytes a code.")
    for name, codes in (("Queries", q), ("The database", db)):
        if len(codes) == 0:
            raise InputError(f"{name} must hold at least one code.")
    return np.ascontiguousarray(to_words(q).T), to_words(db)


def parallel_over_queries(
    queries: int,
    threads: int | None,
    work: Callable[[slice], None],
    progress: Progress = no_progress,
    max_queries: int = _MAX_QUERIES,
) -> None:
    """Run `work` on slices of the queries: at least one a thread, none of more than `at_once` or than fit comfortably."""
    threads = available_threads() if threads is None else check_int("threads", threads, minimum=1)
    size = max(1, min(max_queries, _MAX_QUERIES, -(-queries // threads)))
    slices = [slice(first, min(first + size, queries)) for first in range(0, queries, size)]
    for done, _ in enumerate(ordered_map(work, slices, min(threads, len(slices))), start=1):
        progress("Comparing codes", done / len(slices))
