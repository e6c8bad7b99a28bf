"""What a distance is worth: the share of validation pairs at that distance that are alike, and falling with distance.

The share depends on what is searched (a database with a thousand classes holds fewer items that are alike than one with
ten), so it is measured on validation images and travels with the model.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from proxyhash.evaluation.counts import count_ties
from proxyhash.models.storage import CALIBRATION
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FILE = CALIBRATION
FORMAT = "proxyhash.calibration/1"
THRESHOLD = 0.5  # below it the nearest item is more likely wrong than right


@dataclass(frozen=True, eq=False)
class Calibration:
    """Expected precision of a match by its distance, (bits + 1,), from 1 to 0 and never rising; `pairs` were measured."""

    precision: NDArray[np.float64]
    pairs: NDArray[np.int64]

    def at(self, distance: ArrayLike) -> NDArray[np.float64]:
        """Return the expected precision at some distances."""
        found: NDArray[np.float64] = self.precision[np.asarray(distance, np.int64)]
        return found

    def radius(self, threshold: float = THRESHOLD) -> int:
        """Return the largest distance at which a match is expected to be right, -1 if there is none."""
        return int((self.precision >= threshold).sum()) - 1

    def save(self, folder: Path) -> None:
        """Store it with a model."""
        facts = {"format": FORMAT, "precision": self.precision.tolist(), "pairs": self.pairs.tolist()}
        with atomic_write(folder / FILE) as temporary:
            temporary.write_text(json.dumps(facts))

    @classmethod
    def load(cls, folder: Path, bits: int) -> Self | None:
        """Return what was stored with a model, None if it was never calibrated."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            precision, pairs = np.array(facts["precision"], np.float64), np.array(facts["pairs"], np.int64)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is damaged: {error}; calibrate the model again.") from error
        if facts.get("format") != FORMAT or precision.shape != (bits + 1,) or pairs.shape != (bits + 1,):
            raise InputError(f"{path} does not fit codes of {bits} bits; calibrate the model again.")
        return cls(precision, pairs)


def calibrate(
    query_codes: ArrayLike, query_labels: ArrayLike, database_codes: ArrayLike, database_labels: ArrayLike, bits: int
) -> Calibration:
    """Measure packed codes of queries against a database, both labeled (classes, or tags of which one must be shared).

    Shares at single distances are noisy; pooling neighbors until they fall (isotonic regression, weighted by pairs) is the
    least squares fit among all that never rise.
    """
    counts = count_ties(query_codes, query_labels, database_codes, database_labels)
    pairs, alike = counts.items.sum(0)[: bits + 1], counts.relevant.sum(0)[: bits + 1]
    seen = np.flatnonzero(pairs)
    fitted = isotonic_regression(alike[seen] / pairs[seen], weights=pairs[seen], increasing=False).x
    # A distance that never occurred is worth what the next larger one that did is worth: the careful side.
    following = np.minimum(np.searchsorted(seen, np.arange(bits + 1)), len(seen) - 1)
    return Calibration(np.clip(fitted[following], 0.0, 1.0), pairs)
