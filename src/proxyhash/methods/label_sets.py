"""The distinct classes, or sets of tags, of a training set: all that pairwise similarity depends on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Distinct rows (U, C) of 0 and 1, the most frequent first, how many images have each (U,), and which each has (N,)."""

    rows: Doubles
    counts: NDArray[np.int64]
    member: NDArray[np.int64]

    def similarity(self, some: slice = slice(None), others: slice = slice(None)) -> Doubles:
        """Return S between some sets and others: +1 for two that share something, else -1."""
        shared: Doubles = np.where(self.rows[some] @ self.rows[others].T > 0, 1.0, -1.0)
        return shared


def label_sets(indicator: NDArray[np.floating]) -> LabelSets:
    """Return the distinct label sets of images, from which image has what (N, C)."""
    rows, member, counts = np.unique(indicator, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return LabelSets(rows[order].astype(np.float64), counts[order], place[member.reshape(-1)])
