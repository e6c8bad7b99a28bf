"""Results of metrics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Metric:
    """A mean over queries, with its protocol in its name.

    Examples
    --------
    >>> Metric("precision@1 [ties expected]", np.array([1.0, 0.0]), without_relevant=1)
    precision@1 [ties expected] = 0.5000 (mean of 2 queries; 1 have no relevant item and count 0)
    """

    name: str
    """The metric with its protocol: cutoff, ties, denominator."""
    per_query: NDArray[np.float64]
    """(Q,)"""
    without_relevant: int
    """Number of queries without a relevant item in the database."""
    no_relevant_note: str = "have no relevant item and count 0"
    """Treatment of these queries, in words."""

    @property
    def value(self) -> float:
        """The mean over all queries."""
        return float(self.per_query.mean())

    def __repr__(self) -> str:
        """Return one line with the name, the value and the number of queries."""
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
    """Mean recall and mean precision (bits + 1,) when all items up to each distance are retrieved.

    Examples
    --------
    >>> PrecisionRecallCurve(recall=np.array([0.5, 1.0]), precision=np.array([1.0, 0.5]))
    PrecisionRecallCurve(2 points, precision 1.0000 to 0.5000)
    """

    recall: NDArray[np.float64]
    precision: NDArray[np.float64]

    def __repr__(self) -> str:
        """Return one line with the number of points and the range of precision."""
        span = f"{self.precision[0]:.4f} to {self.precision[-1]:.4f}"
        return f"PrecisionRecallCurve({len(self.recall)} points, precision {span})"
