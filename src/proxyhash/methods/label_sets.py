"""Distinct label sets of a training set, on which pairwise similarity depends."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Distinct label sets, the most frequent first.

    `rows` (U, C) holds 0 and 1, `counts` (U,) the number of images of each row, `member` (N,) the row of each image.
    """

    rows: Doubles
    counts: NDArray[np.int64]
    member: NDArray[np.int64]

    def similarity(self, some: slice = slice(None), others: slice = slice(None)) -> Doubles:
        """Return S between some sets and others: +1 for two that share a class or tag, else -1."""
        shared: Doubles = np.where(self.rows[some] @ self.rows[others].T > 0, 1.0, -1.0)
        return shared


def label_sets(one_hot: NDArray[np.floating]) -> LabelSets:
    """Return the distinct label sets of images, from their one-hot classes or tags (N, C)."""
    rows, member, counts = np.unique(one_hot, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return LabelSets(rows[order].astype(np.float64), counts[order], rank[member.reshape(-1)])
