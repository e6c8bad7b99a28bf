"""The k nearest codes of a flat segment in refined order: all codes that tie with the k-th are compared."""

from collections.abc import Callable

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.hits import Hits, keep_best, merge_hits, refine_hits
from proxyhash.index.item_ids import Int64s
from proxyhash.index.refinement.distances import RefinedRows, refinement_distances

_MAX_RESULTS = 4_000_000  # codes within a radius that are gathered at a time

Nearest = Callable[[Words, int], Hits]
RangeSearch = Callable[[Words, int], Hits]


def refine(hits: Hits, rows: RefinedRows) -> Hits:
    """Return the hits of one segment in the order of distance, refinement and item id."""
    return refine_hits(hits, refinement_distances(rows, hits.queries, hits.slots))


def refined_nearest(
    queries: Words, k: int, rows: RefinedRows, size: int, nearest: Nearest, range_search: RangeSearch
) -> Hits:
    """Return the k nearest codes of each of `queries` (Q, W) in refined order, however many tie with the k-th.

    Parameters
    ----------
    queries
        Codes (Q, W).
    k
        Number of codes for each query.
    rows
        Rows of the queries and of the segment.
    size
        Number of codes in the segment.
    nearest, range_search
        Searches of the segment without refinement.
    """
    found = nearest(queries, k + 1)
    width = min(k + 1, size)
    if width <= k:
        return refine(found, rows)
    distances = found.distances.reshape(len(queries), width)
    is_tied = distances[:, k - 1] == distances[:, k]  # further codes may tie
    settled = keep_best(_of_queries(found, ~is_tied), k)
    parts = [refine(settled, rows)]
    for radius in np.unique(distances[is_tied, k - 1]).tolist():
        tied = np.flatnonzero(is_tied & (distances[:, k - 1] == radius))
        for first in range(0, len(tied), max(1, _MAX_RESULTS // size)):
            some = tied[first : first + max(1, _MAX_RESULTS // size)]
            inside = _spread(range_search(queries[some], radius), some, len(queries))
            parts.append(keep_best(refine(inside, rows), k))
    return merge_hits(parts, len(queries))


def _of_queries(hits: Hits, chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Hits:
    """Return the hits of some queries (Q,); the others have none."""
    return hits.take(np.flatnonzero(chosen[hits.queries]))


def _spread(hits: Hits, chosen: Int64s, queries: int) -> Hits:
    """Return hits of a few queries, given by ascending numbers, as hits of all."""
    counts = np.zeros(queries, np.int64)
    counts[chosen] = np.diff(hits.offsets)
    return Hits(hits.ranks, np.concatenate([[0], np.cumsum(counts)]), hits.slots)
