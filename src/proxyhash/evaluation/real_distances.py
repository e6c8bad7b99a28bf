"""Counts of ties for real-valued distances: real queries or ADC tables against codes, or weighted bits."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.adc import table_scorer
from proxyhash.codes.bits import Packed, check_packed, unpack
from proxyhash.evaluation.counts import TieCounts
from proxyhash.evaluation.relevance import relevance
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import jit
from proxyhash.utils.parallel import available_threads, prefetch
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_MAX_ITEMS = 65_536
_MAX_PAIRS = 2_000_000  # of a thread
_PREFETCHED = 2  # chunks that are counted while one is consumed
_DIGITS = 1e9  # distances that are equal after rounding to 1e-9 are ties


def count_real_ties(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    bit_weights: ArrayLike | None = None,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Iterator[TieCounts]:
    """Yield the counts (queries, groups) of tied items, nearest first, for some queries at a time.

    Queries are real values (Q, bits), compared by (bits - q.b) / 2, or packed codes compared bit by bit with `bit_weights`
    (bits,), or tables (Q, M, k), see `codes.adc`. Distances that agree to nine digits are ties.
    """
    database = check_packed("The database", db_codes)
    count, distances = _scorer(query_codes, bit_weights, database)
    labels = relevance(query_labels, db_labels, count, len(database))
    threads = available_threads() if threads is None else check_int("threads", threads, minimum=1)
    size = max(1, _MAX_PAIRS // len(database))
    pieces = [slice(first, first + size) for first in range(0, count, size)]
    with ThreadPoolExecutor(threads) as pool:
        begun = (pool.submit(lambda rows: group_ties(distances(rows), labels.matrix(rows)), piece) for piece in pieces)
        for done, counted in enumerate(prefetch(begun, threads + _PREFETCHED), start=1):
            yield counted.result()
            progress("Comparing codes", done / len(pieces))


def group_ties(distances: NDArray[np.float64], relevant: NDArray[np.bool_]) -> TieCounts:
    """Return groups of tied items from distances (Q, N): groups with relevant items, and all items between two of them.

    The order of items between relevant ones does not change any metric. So only relevant items are sorted, and the others
    are counted between them by binary search.
    """
    columns = 2 * int(np.count_nonzero(relevant, axis=1).max(initial=0)) + 1
    items, hits = (np.zeros((len(distances), columns), np.int64) for _ in range(2))
    _count_rows(distances, relevant, items, hits)
    return TieCounts(items, hits)


@jit(nogil=True)
def _count_rows(
    distances: NDArray[np.float64], relevant: NDArray[np.bool_], items: NDArray[np.int64], hits: NDArray[np.int64]
) -> None:
    """Count items as near as the g-th relevant ones in column 2 g + 1, those between these and the ones before in 2 g."""
    for query in range(len(distances)):
        near = np.rint(distances[query] * _DIGITS)
        met = np.sort(near[relevant[query]])
        groups = 0
        for position in range(len(met)):
            if position == 0 or met[position] != met[groups - 1]:
                met[groups] = met[position]
                groups += 1
            hits[query, 2 * groups - 1] += 1
        for item in range(len(near)):
            low, length = 0, groups
            while length > 0:  # binary search without branches for the first group that is not nearer
                half = length >> 1
                further = met[low + half] < near[item]
                low = low + half + 1 if further else low
                length = length - half - 1 if further else half
            tied = low < groups and met[low] == near[item]
            items[query, 2 * low + (1 if tied else 0)] += 1


def _scorer(
    query_codes: ArrayLike, bit_weights: ArrayLike | None, database: Packed
) -> tuple[int, Callable[[slice], NDArray[np.float64]]]:
    """Return the number of queries, and a function from rows of queries to their distances (rows, N)."""
    if np.ndim(query_codes) == 3:
        if bit_weights is not None:
            raise InputError("Tables hold every bit's weight already; give no bit weights with them.")
        return len(np.asarray(query_codes)), table_scorer(query_codes, database)
    queries, weights = _real_queries(query_codes, bit_weights, database.shape[1])
    return len(queries), lambda rows: _distances(queries[rows] * weights, database, float(weights.sum()))


def _real_queries(
    queries: ArrayLike, bit_weights: ArrayLike | None, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return queries (Q, bits) and weights (bits,) as floats, checked against a database of `width` bytes a code."""
    q = np.asarray(queries)
    weights = None if bit_weights is None else np.asarray(bit_weights, dtype=np.float64)
    if weights is not None and (weights.ndim != 1 or not np.isfinite(weights).all()):
        raise InputError("Bit weights must be a list of finite numbers, one for each bit.")
    if q.dtype == np.uint8:
        if weights is None:
            raise InputError("Packed queries need bit weights here; without them use the Hamming distance.")
        q = unpack(q, len(weights))
    if q.ndim != 2 or q.dtype.kind not in "if" or not np.isfinite(q).all():
        raise InputError("Real-valued queries must be a matrix (queries, bits) of finite numbers.")
    weights = np.ones(q.shape[1]) if weights is None else weights
    if len(weights) != q.shape[1] or (q.shape[1] + 7) // 8 != width:
        raise InputError(
            f"Queries of {q.shape[1]} bits and {len(weights)} weights do not fit a database of {width} bytes a code."
        )
    return q.astype(np.float64), weights


def _distances(queries: NDArray[np.float64], database: NDArray[np.uint8], span: float) -> NDArray[np.float64]:
    bits = queries.shape[1]
    distances = np.empty((len(queries), len(database)))
    for first in range(0, len(database), _MAX_ITEMS):
        part = slice(first, first + _MAX_ITEMS)
        distances[:, part] = (span - queries @ unpack(database[part], bits).T.astype(np.float64)) / 2
    return distances
