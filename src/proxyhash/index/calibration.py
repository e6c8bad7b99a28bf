"""Calibration: the expected precision of a match by its distance, measured on validation pairs.

The precision depends on what is searched: a database of a thousand classes holds fewer items that are alike than one of ten.
It is stored with the model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.models.storage import CALIBRATION, CONFIG, fingerprint
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json

FILE = CALIBRATION
FORMAT = "proxyhash.calibration/2"
FORMATS = (FORMAT, "proxyhash.calibration/1")
ROUNDING = 1e-9  # by which a fitted precision may rise
THRESHOLD = 0.5  # expected precision; below it, the nearest item is more likely wrong than right


@dataclass(frozen=True, eq=False)
class Calibration:
    """Expected precision of a match by its distance.

    Attributes
    ----------
    precision
        Expected precision (bits + 1,), between 0 and 1, never rising with distance.
    pairs
        Number of validation pairs at each distance (bits + 1,).

    Examples
    --------
    >>> import numpy as np
    >>> calibration = Calibration(np.array([1.0, 0.9, 0.4]), np.array([10, 20, 30]))
    >>> float(calibration.at(1)), calibration.radius(threshold=0.5)
    (0.9, 1)
    """

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
        """Store the calibration with a model."""
        model = fingerprint(folder) if (folder / CONFIG).is_file() else None
        values = {"model": model, "precision": self.precision.tolist(), "pairs": self.pairs.tolist()}
        with atomic_write(folder / FILE) as temporary:
            temporary.write_text(dump_json({"format": FORMAT, REQUIRES: RELEASE, **values}), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, bits: int) -> Self | None:
        """Return the calibration of a model, None if it was never calibrated."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            precision, pairs = _read(path, bits)
        except InputError as error:
            raise InputError(f"{str(error).rstrip('.')}; calibrate the model again.") from error
        return cls(precision, pairs)


def _read(path: Path, bits: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the values of a file, after a check that they could have been measured."""
    content = read_json(path)
    fields = content if isinstance(content, dict) else {}
    check_format(path, fields.get("format"), FORMATS, fields.get(REQUIRES))
    if fields.get("model") is not None and fields["model"] != fingerprint(path.parent):
        raise InputError(f"{path} belongs to another model.")
    precision = _numbers(fields.get("precision"), np.float64, bits, path)
    pairs = _numbers(fields.get("pairs"), np.int64, bits, path)
    if not ((precision >= 0) & (precision <= 1)).all() or (np.diff(precision) > ROUNDING).any() or (pairs < 0).any():
        reason = "precision is from 0 to 1 and never rises with distance, and numbers of pairs are not negative"
        raise InputError(f"{path} is damaged: {reason}.")
    return precision, pairs


def _numbers(values: object, dtype: type[Any], bits: int, path: Path) -> NDArray[Any]:
    """Return a list of one number for each distance as an array."""
    kinds: tuple[type, ...] = (int,) if dtype is np.int64 else (int, float)
    if not isinstance(values, list) or len(values) != bits + 1:
        raise InputError(f"{path} does not fit codes of {bits} bits.")
    if not all(type(value) in kinds and abs(value) < 1 << 62 for value in values):
        raise InputError(f"{path} is damaged: it holds other values than numbers.")
    return np.array(values, dtype)


def calibrate(
    query_codes: ArrayLike, query_labels: ArrayLike, database_codes: ArrayLike, database_labels: ArrayLike, bits: int
) -> Calibration:
    """Measure the precision of matches by distance, from packed codes of queries and of a database with labels.

    Shares at single distances are noisy. Isotonic regression, weighted by the number of pairs, gives the least squares fit
    that never rises with distance.

    Parameters
    ----------
    query_codes, database_codes
        Packed codes (Q, bytes) and (N, bytes).
    query_labels, database_labels
        Classes (Q,) and (N,), or tags (Q, T) and (N, T) of which two items that are alike share one.
    bits
        Length of the codes.

    Returns
    -------
    Calibration
        The expected precision by distance.

    Examples
    --------
    >>> import numpy as np
    >>> query, database = np.zeros((1, 1), np.uint8), np.array([[0], [1], [15]], np.uint8)
    >>> calibrate(query, [0], database, [0, 0, 1], bits=8).precision[:5].tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """
    from scipy.optimize import isotonic_regression  # it takes half a second to import

    from proxyhash.evaluation.counts import count_ties

    counts = count_ties(query_codes, query_labels, database_codes, database_labels)
    pairs, alike = counts.items.sum(0)[: bits + 1], counts.relevant.sum(0)[: bits + 1]
    seen = np.flatnonzero(pairs)
    fitted = isotonic_regression(alike[seen] / pairs[seen], weights=pairs[seen], increasing=False).x
    # A distance without pairs takes the precision of the next larger distance with pairs, the smaller of its neighbors'.
    following = np.minimum(np.searchsorted(seen, np.arange(bits + 1)), len(seen) - 1)
    return Calibration(np.clip(fitted[following], 0.0, 1.0), pairs)
