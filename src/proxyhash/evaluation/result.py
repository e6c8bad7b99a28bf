"""One result object for every metric: its value, its protocol in its name, and the scores it is the mean of."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Metric:
    """A mean over queries. Queries for which nothing is relevant score 0 and are counted, never dropped."""

    name: str
    """The metric with its protocol: cutoff, ties, denominator."""
    per_query: NDArray[np.float64]
    """(Q,)"""
    without_relevant: int
    """How many queries have no relevant item in the database."""

    @property
    def value(self) -> float:
        """The mean over all queries."""
        return float(self.per_query.mean())

    def __repr__(self) -> str:
        """One line: name, value, and what it is the mean of."""
        note = f"; {self.without_relevant:,} have no relevant item and count 0" if self.without_relevant else ""
        return f"{self.name} = {self.value:.4f} (mean of {len(self.per_query):,} queries{note})"

    def as_dict(self) -> dict[str, Any]:
        """Return name, value and sizes, ready for JSON."""
        return {
            "name": self.name,
            "value": self.value,
            "queries": len(self.per_query),
            "without_relevant": self.without_relevant,
        }
