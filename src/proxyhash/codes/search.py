"""Exact search of packed codes by Hamming distance, with the same result for any number of threads."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words, check_packed, to_words
from proxyhash.codes.bitsliced import kernels as bitsliced
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads, ordered_map
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_MAX_QUERIES = 512  # that one pass over the database serves
_MAX_CANDIDATES = 10_000_000  # in the buffers of a thread: 100 MB
NUMPY_NANOSECONDS = 12  # for one word of a code; compiled code is ten times as fast


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Nearest items of each query, nearest first, ties by position: `distances` and `indices`, both (Q, k).

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> top_k(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1]]), k=2)
    Neighbors(2 of each of 1 queries, 0 to 1 bits)
    """

    distances: NDArray[np.int16]
    indices: NDArray[np.int64]

    def __repr__(self) -> str:
        """Show the number of neighbors and the range of distances."""
        span = f"{self.distances.min()} to {self.distances.max()} bits" if self.distances.size else "none"
        return f"Neighbors({self.indices.shape[1]} of each of {len(self.indices):,} queries, {span})"


@dataclass(frozen=True, eq=False)
class RangeSearchResult:
    """Items within a radius, nearest first: `indices[starts[q]:starts[q + 1]]` for query q; `distances` likewise.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> range_search(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1]]), radius=0)
    RangeSearchResult(1 items for 1 queries)
    """

    starts: NDArray[np.int64]
    distances: NDArray[np.int16]
    indices: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.starts) - 1

    def __getitem__(self, query: int) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        """Return the distances and the indices of one query."""
        mine = slice(self.starts[query], self.starts[query + 1])
        return self.distances[mine], self.indices[mine]

    def __repr__(self) -> str:
        """Show the number of items."""
        return f"RangeSearchResult({len(self.indices):,} items for {len(self):,} queries)"


def hamming_distances(queries: ArrayLike, database: ArrayLike, *, threads: int | None = None) -> NDArray[np.int16]:
    """Return all Hamming distances between queries and a database.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes).
    database
        Packed codes (N, bytes).
    threads
        Number of threads; by default all cores.

    Returns
    -------
    ndarray of int16
        Distances (Q, N).

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> hamming_distances(pack([[1, 1, 1]]), pack([[1, 1, 1], [1, -1, -1]])).tolist()
    [[0, 2]]
    """
    q, db = check_words(queries, database)
    out = np.empty((len(q), db.shape[1]), np.int16)
    parallel_over_queries(len(q), threads, lambda rows: kernels.distance_rows(q[rows], db, out[rows]))
    return out


def distance_histograms(queries: ArrayLike, database: ArrayLike, *, threads: int | None = None) -> NDArray[np.int64]:
    """Count the items of a database at each distance from each query.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes).
    database
        Packed codes (N, bytes).
    threads
        Number of threads; by default all cores.

    Returns
    -------
    ndarray of int64
        Counts (Q, 8 * bytes + 1).

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> distance_histograms(pack([[1, 1, 1]]), pack([[1, 1, 1], [1, -1, -1]]))[0, :4].tolist()
    [1, 0, 1, 0]
    """
    q, db = check_words(queries, database)
    out = np.zeros((len(q), 64 * len(db) + 1), np.int64)
    parallel_over_queries(len(q), threads, histogram_adder(q, db, out, np.full(len(q), 64)))
    return out[:, : 8 * np.shape(queries)[1] + 1]


def histogram_adder(q: Words, db: Words, out: NDArray[np.int64], far: NDArray[np.int64]) -> Callable[[slice], None]:
    """Return a function that adds, for a slice of queries, the histogram of distances from `q` (Q, W) to `db` (W, N).

    It adds to `out` (Q, 64 W + 1), and may leave out distances beyond the current values of `far` (Q,).
    """
    if not bitsliced.is_faster(q, db):
        return lambda rows: kernels.histogram_rows(q[rows], db, out[rows])
    parts = bitsliced.split_by_parity(db)

    def add(rows: slice) -> None:
        for part in parts:
            bitsliced.histogram_rows(q[rows], part, far[rows], out[rows])

    return add


def top_k(queries: ArrayLike, database: ArrayLike, k: int, *, threads: int | None = None) -> Neighbors:
    """Find the k nearest items of each query, ties by position.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes).
    database
        Packed codes (N, bytes).
    k
        Number of neighbors; a smaller database returns all its items.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    Neighbors
        Distances and indices (Q, min(k, N)).

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> found = top_k(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1], [1, 1, -1]]), k=2)
    >>> found.indices.tolist(), found.distances.tolist()
    ([[1, 0]], [[0, 1]])
    """
    return top_k_words(*check_words(queries, database), check_int("k", k, minimum=1), threads)


def top_k_words(q: Words, db: Words, k: int, threads: int | None = None) -> Neighbors:
    """Return the same for queries (Q, W) and a database (W, N) of words."""
    k = min(k, db.shape[1])
    if _use_numpy(q, db):
        sorted_rows = [_sort_by_distance(row, db) for row in q]
        return Neighbors(*(np.array([row[part][:k] for row in sorted_rows]) for part in (0, 1)))
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
    """Find all items within a radius of each query.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes).
    database
        Packed codes (N, bytes).
    radius
        Largest Hamming distance.
    threads
        Number of threads; by default all cores.

    Returns
    -------
    RangeSearchResult
        Distances and indices of each query, nearest first, ties by position.

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> range_search(pack([[1, 1, 1]]), pack([[-1, 1, 1], [1, 1, 1], [1, -1, -1]]), radius=1)[0]
    (array([0, 1], dtype=int16), array([1, 0]))
    """
    return range_search_words(*check_words(queries, database), check_int("radius", radius, minimum=0), threads)


def range_search_words(q: Words, db: Words, radius: int, threads: int | None = None) -> RangeSearchResult:
    """Return the same for queries (Q, W) and a database (W, N) of words."""
    if _use_numpy(q, db):
        sorted_rows = [_sort_by_distance(row, db) for row in q]
        found = [(near[near <= radius], order[near <= radius]) for near, order in sorted_rows]
        starts = np.concatenate([[0], np.cumsum([len(near) for near, _ in found])])
        return RangeSearchResult(starts, *(np.concatenate([row[part] for row in found]) for part in (0, 1)))
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


def _use_numpy(q: Words, db: Words) -> bool:
    return len(q) > 0 and cold_start.use_numpy(1e-9 * NUMPY_NANOSECONDS * len(q) * db.size)


def _sort_by_distance(query: Words, db: Words) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the distances (N,) of a query (W,) to a database (W, N) in ascending order, and the order; ties by position."""
    distances = np.bitwise_count(db ^ query[:, None]).sum(0, dtype=np.int16)
    order = np.argsort(distances, kind="stable")
    return distances[order], order


def check_words(queries: ArrayLike, database: ArrayLike) -> tuple[Words, Words]:
    """Return queries (Q, W) and database (W, N) as 64-bit words; empty or unequal codes are errors."""
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
    """Run `work` on slices of the queries in parallel; a slice has at most `max_queries` queries."""
    threads = available_threads() if threads is None else check_int("threads", threads, minimum=1)
    size = max(1, min(max_queries, _MAX_QUERIES, -(-queries // threads)))
    slices = [slice(first, min(first + size, queries)) for first in range(0, queries, size)]
    for done, _ in enumerate(ordered_map(work, slices, min(threads, len(slices))), start=1):
        progress("Comparing codes", done / len(slices))
