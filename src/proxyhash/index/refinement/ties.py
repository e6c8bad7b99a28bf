"""The k nearest codes of a flat segment in refined order: all codes that tie with the k-th are compared."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.hits import Hits, keep_best, merge_hits, refine_hits, spread_hits
from proxyhash.index.item_ids import Int64s
from proxyhash.index.refinement.distances import RefinedRows, refinement_distances

_MAX_RESULTS = 4_000_000  # codes within a radius that are gathered at a time

RangeSearch = Callable[[Words, int], Hits]


def refine(hits: Hits, rows: RefinedRows) -> Hits:
    """Return the hits of one segment in the order of distance, refinement and item id."""
    return refine_hits(hits, refinement_distances(rows, hits.queries, hits.slots))


def refine_ties(found: Hits, queries: Words, k: int, rows: RefinedRows, size: int, range_search: RangeSearch) -> Hits:
    """Return the k nearest codes of each query in refined order, however many tie with the k-th.

    Parameters
    ----------
    found
        The k + 1 nearest codes of each query, or all, if there are fewer.
    queries
        Codes (Q, W).
    k
        Number of codes for each query.
    rows
        Rows of the queries and of the segment.
    size
        Number of codes in the segment.
    range_search
        Returns all codes within a radius of some queries.
    """
    radii = _tied_radii(found, k)
    parts = [refine(keep_best(_of_queries(found, radii < 0), k), rows)]
    for radius in np.unique(radii[radii >= 0]).tolist():
        tied = np.flatnonzero(radii == radius)
        step = max(1, _MAX_RESULTS // size)
        for first in range(0, len(tied), step):
            some = tied[first : first + step]
            inside = spread_hits(range_search(np.ascontiguousarray(queries[some]), radius), some, len(queries))
            parts.append(keep_best(refine(inside, rows), k))
    return merge_hits(parts, len(queries))


def _tied_radii(found: Hits, k: int) -> Int64s:
    """Return the distance of the k-th code of each query (Q,) if the next one ties with it, so that more may; else -1."""
    radii, distances = np.full(len(found), -1, np.int64), found.distances
    last = found.offsets[:-1][np.diff(found.offsets) > k] + k
    is_full = np.diff(found.offsets) > k
    radii[is_full] = np.where(distances[last - 1] == distances[last], distances[last], -1)
    return radii


def _of_queries(hits: Hits, chosen: NDArray[np.bool_]) -> Hits:
    """Return the hits of some queries (Q,); the others have none."""
    return hits.take(np.flatnonzero(chosen[hits.queries]))
