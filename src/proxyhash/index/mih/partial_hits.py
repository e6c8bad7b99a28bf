"""Hits of a search that may give queries up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.hits import Hits
from proxyhash.index.item_ids import Int64s

NO_LIMIT = 2**62  # of the number of codes that a query compares


@dataclass(frozen=True, eq=False)
class PartialHits:
    """Hits of Q queries, some of which were given up and have none: `is_complete` (Q,) tells which are final.

    `compared` (Q,) is the number of codes that each query was compared with.
    """

    hits: Hits
    compared: Int64s
    is_complete: NDArray[np.bool_]


def join_parts(parts: Sequence[PartialHits], queries: int) -> PartialHits:
    """Return the hits of successive queries as one; those after the last part, up to `queries`, were given up."""
    tried = sum(len(part.compared) for part in parts)
    nothing = Hits(np.empty(0, np.uint64), np.zeros(queries - tried + 1, np.int64), np.empty(0, np.int64))
    left = queries - tried
    everything = [*parts, PartialHits(nothing, np.zeros(left, np.int64), np.zeros(left, np.bool_))]
    counts = np.concatenate([np.diff(part.hits.offsets) for part in everything])
    ranks, slots = (np.concatenate([getattr(part.hits, name) for part in everything]) for name in ("ranks", "slots"))
    return PartialHits(
        Hits(ranks, np.concatenate([[0], np.cumsum(counts)]), slots),
        np.concatenate([part.compared for part in everything]),
        np.concatenate([part.is_complete for part in everything]),
    )
