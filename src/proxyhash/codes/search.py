"""Exact search of packed codes by Hamming distance, with the same result for any number of threads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels, scan
from proxyhash.codes.bits import Packed, Words, check_packed, to_words
from proxyhash.codes.bitsliced.slicing import CodeRows, code_rows
from proxyhash.codes.histograms import histogram_adder
from proxyhash.codes.sources import CodeSource, PlainCodes, RowCodes
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads, leaf_map, ordered_map
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_MAX_QUERIES = 512  # that one pass over the database serves
_MIN_SLICED_QUERIES = 8  # with fewer queries, converting plain codes to bit planes costs more than it saves
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
    bits = 8 * np.shape(queries)[1]
    out = np.zeros((len(q), bits + 1), np.int64)
    parallel_over_queries(len(q), threads, histogram_adder(q, db, out, np.full(len(q), bits)))
    return out


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
    q, db = check_codes(queries, database)
    k = min(check_int("k", k, minimum=1), len(db))
    if use_numpy(q, db):
        found = [sort_by_distance(row, code_rows(db)) for row in code_rows(q)]
        return Neighbors(*(np.array([row[part][:k] for row in found]) for part in (0, 1)))
    return Neighbors(*scan.nearest(_source(q, db), q, k, threads))


def range_search(
    queries: ArrayLike, database: ArrayLike, radius: int | ArrayLike, *, threads: int | None = None
) -> RangeSearchResult:
    """Find all items within a radius of each query.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes).
    database
        Packed codes (N, bytes).
    radius
        Largest Hamming distance: one for all queries, or one for each (Q,).
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
    q, db = check_codes(queries, database)
    radii = check_radii(radius, len(q))
    if use_numpy(q, db):
        rows = [sort_by_distance(row, code_rows(db)) for row in code_rows(q)]
        found = [(near[near <= most], order[near <= most]) for (near, order), most in zip(rows, radii, strict=True)]
        starts = np.concatenate([[0], np.cumsum([len(near) for near, _ in found])])
        return RangeSearchResult(starts, *(np.concatenate([row[part] for row in found]) for part in (0, 1)))
    return RangeSearchResult(*scan.collect(_source(q, db), q, radii, threads))


def _source(queries: Packed, database: Packed) -> CodeSource:
    """Return plain codes (N, bytes) as they are compared fastest with so many queries."""
    bits = 8 * database.shape[1]
    few = len(queries) < _MIN_SLICED_QUERIES
    return RowCodes(code_rows(database), bits) if few else PlainCodes(code_rows(database), bits)


def check_radii(radius: int | ArrayLike, queries: int) -> NDArray[np.int64]:
    """Return a radius for each query (Q,), from one for all of them or one for each."""
    if np.ndim(radius) == 0:
        return np.full(queries, check_int("radius", radius, minimum=0), np.int64)
    radii = np.asarray(radius)
    if radii.shape != (queries,) or radii.dtype.kind not in "iu" or (radii < 0).any():
        raise InputError(f"radius must be a whole number of at least 0, or one for each of {queries:,} queries.")
    return radii.astype(np.int64)


def use_numpy(queries: NDArray[Any], database: NDArray[Any]) -> bool:
    """Return whether to compare these codes with numpy, because compiled functions are not loaded yet."""
    return len(queries) > 0 and cold_start.use_numpy(1e-9 * NUMPY_NANOSECONDS * len(queries) * database.nbytes / 8)


def sort_by_distance(query: CodeRows, rows: CodeRows) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Return the distances (N,) of a query (W,) to codes (N, W) in ascending order, and the order; ties by position."""
    distances = np.bitwise_count(rows ^ query).sum(1, dtype=np.int16)
    order = np.argsort(distances, kind="stable")
    return distances[order], order


def check_codes(queries: ArrayLike, database: ArrayLike) -> tuple[Packed, Packed]:
    """Return packed queries (Q, bytes) and a packed database (N, bytes); empty or unequal codes are errors."""
    q, db = check_packed("Queries", queries), check_packed("The database", database)
    if q.shape[1] != db.shape[1]:
        raise InputError(f"Queries of {q.shape[1]} bytes cannot be compared with a database of {db.shape[1]} bytes a code.")
    for name, codes in (("Queries", q), ("The database", db)):
        if len(codes) == 0:
            raise InputError(f"{name} must hold at least one code.")
    return q, db


def check_words(queries: ArrayLike, database: ArrayLike) -> tuple[Words, Words]:
    """Return queries (Q, W) and database (W, N) as 64-bit words; empty or unequal codes are errors."""
    q, db = check_codes(queries, database)
    return np.ascontiguousarray(to_words(q).T), to_words(db)


def parallel_over_queries(
    queries: int,
    threads: int | None,
    work: Callable[[slice], None],
    progress: Progress = no_progress,
    max_queries: int = _MAX_QUERIES,
) -> None:
    """Run `work` on slices of the queries in parallel; a slice has at most `max_queries` queries.

    If there is no more than a slice for each thread, threads that are kept do the work, and the calling thread takes part:
    starting threads would take longer than many a search. So `work` must not wait for other work of these threads.
    """
    threads = available_threads() if threads is None else check_int("threads", threads, minimum=1)
    size = max(1, min(max_queries, _MAX_QUERIES, -(-queries // threads)))
    slices = [slice(first, min(first + size, queries)) for first in range(0, queries, size)]
    run = leaf_map if len(slices) <= threads else ordered_map
    for done, _ in enumerate(run(work, slices, threads), start=1):
        progress("Comparing codes", done / len(slices))
