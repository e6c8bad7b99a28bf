"""One result object for every metric: its value, its protocol in its name, and the scores it is the mean of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Metric:
    """A mean over queries. Queries for which nothing is relevant are counted and reported, never dropped in silence."""

    name: str
    """The metric with its protocol: cutoff, ties, denominator."""
    per_query: NDArray[np.float64]
    """(Q,)"""
    without_relevant: int
    """How many queries have no relevant item in the database."""
    no_relevant_note: str = "have no relevant item and count 0"
    """Sentence about the queries without relevant items."""

    @property
    def value(self) -> float:
        """The mean over all queries."""
        return float(self.per_query.mean())

    def __repr__(self) -> str:
        """One line: name, value, and what it is the mean of."""
        note = f"; {self.without_relevant:,} {self.no_relevant_note}" if self.without_relevant else ""
        return f"{self.name} = {self.value:.4f} (mean of {len(self.per_query):,} queries{note})"

    def as_dict(self) -> dict[str, Any]:
        """Return name, value and sizes, ready for JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "queries": len(self.per_query),
            "without_relevant": self.without_relevant,
        }


@dataclass(frozen=True, eq=False)
class PrecisionRecallCurve:
    """Mean recall and mean precision (bits + 1,), one point for each distance up to which items are retrieved."""

    recall: NDArray[np.float64]
    precision: NDArray[np.float64]

    def __repr__(self) -> str:
        """Say how many points there are and where the curve ends."""
        return f"Curve({len(self.recall)} points, precision {self.precision[0]:.4f} to {self.precision[-1]:.4f})"
