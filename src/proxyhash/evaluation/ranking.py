"""The sort path: retrieval by real-valued distances, of real queries or tables against codes, or with a weight a bit."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.bits import Packed, checked_packed, unpack
from proxyhash.codes.tables import checked_tables, sum_entries
from proxyhash.evaluation.counts import TieCounts
from proxyhash.evaluation.relevance import relevance
from proxyhash.support.errors import InputError

_ITEMS_AT_ONCE = 65_536
_PAIRS_AT_ONCE = 8_000_000


def count_ranked(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    db_codes: ArrayLike,
    db_labels: ArrayLike,
    bit_weights: ArrayLike | None = None,
) -> Iterator[TieCounts]:
    """Yield for each query its groups of tied items, nearest first, as counts (1, groups).

    Queries are real values (Q, bits), compared by (bits - q.b) / 2, or packed codes compared bit by bit with `bit_weights`
    (bits,), or tables (Q, M, k), see `codes.tables`. Distances that agree to nine digits are ties.
    """
    database = checked_packed("The database", db_codes)
    count, distances = _scorer(query_codes, bit_weights, database)
    labels = relevance(query_labels, db_labels, count, len(database))
    size = max(1, _PAIRS_AT_ONCE // len(database))
    for first in range(0, count, size):
        rows = slice(first, first + size)
        for row, relevant in zip(distances(rows), labels.matrix(rows), strict=True):
            yield _tie_groups(np.round(row, 9), relevant)


def _scorer(
    query_codes: ArrayLike, bit_weights: ArrayLike | None, database: Packed
) -> tuple[int, Callable[[slice], NDArray[np.float64]]]:
    """Return how many queries there are, and what gives the distances (rows, N) of some of them."""
    if np.ndim(query_codes) == 3:
        if bit_weights is not None:
            raise InputError("Tables hold every bit's weight already; give no bit weights with them.")
        tables, symbols = checked_tables(query_codes, database)
        return len(tables), lambda rows: sum_entries(tables[rows], symbols)
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
    for first in range(0, len(database), _ITEMS_AT_ONCE):
        part = slice(first, first + _ITEMS_AT_ONCE)
        distances[:, part] = (span - queries @ unpack(database[part], bits).T.astype(np.float64)) / 2
    return distances


def _tie_groups(distances: NDArray[np.float64], relevant: NDArray[np.bool_]) -> TieCounts:
    order = np.argsort(distances)  # which of tied items comes first is of no account
    ranked = distances[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] > ranked[:-1]]))
    items = np.diff(np.append(starts, len(ranked)))
    return TieCounts(items[None], np.add.reduceat(relevant[order].astype(np.int64), starts)[None])
