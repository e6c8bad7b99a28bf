"""Refiners: projections of features to short codes or int8 values, and their settings in an index."""

import base64
import binascii
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import pack
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.queries import Features

Kind = Literal["code", "code256", "int8", "int8x256"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_WIDTH: dict[Kind, int] = {"code": 128, "code256": 256, "int8": 64, "int8x256": 256}  # bits, or values
MAX_VALUE = 127
_ROWS_PER_CHUNK = 8192

Floats = NDArray[np.float32]
Rows = NDArray[np.uint8] | NDArray[np.int8]
"""Codes (n, bytes) of uint8, whole words of 64 bits, or values (n, width) of int8."""


class StoredRows(NamedTuple):
    """Rows (n, row_width) of items, and which refiner they are of; they are not compared with rows of another one."""

    rows: Rows
    refiner_id: Hashable


def check_kind(kind: str) -> Kind:
    """Return the kind of a refinement; an unknown name is an InputError.

    >>> check_kind("int8")
    'int8'
    """
    if kind not in KINDS:
        raise InputError(f"There is no refinement {kind!r}; choose one of {', '.join(KINDS)}.")
    return kind


@dataclass(frozen=True, eq=False)
class Refiner:
    """A projection P'(q - m) of features q: its signs are a code, or its values divided by `step` are rounded to int8.

    Parameters
    ----------
    kind
        "code" (128 bits), "code256", "int8" (64 values) or "int8x256"; fewer values if there are fewer features.
    mean
        m (num_features,).
    projection
        P (num_features, width), rounded to float16, in which it is stored.
    step
        Difference of two neighboring int8 values; 1 for codes.
    fitted_on
        Number of items that it was fitted on.

    Examples
    --------
    >>> refiner = Refiner("int8", np.zeros(2, np.float32), np.eye(2, dtype=np.float32), 0.5, 10)
    >>> refiner.encode(np.array([[1.0, -100.0]], np.float32)).tolist()
    [[2, -127]]
    """

    kind: Kind
    mean: Floats
    projection: Floats
    step: float
    fitted_on: int

    @property
    def num_features(self) -> int:
        """Return the number of values of the features."""
        return len(self.mean)

    @property
    def width(self) -> int:
        """Return the number of bits of a code, or of int8 values."""
        return int(self.projection.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the rows."""
        return np.dtype(np.int8 if self.has_values else np.uint8)

    @property
    def has_values(self) -> bool:
        """Return whether rows are int8 values, and not codes."""
        return self.kind.startswith("int8")

    @property
    def row_width(self) -> int:
        """Return the number of bytes of a row; a code is filled up to whole words of 64 bits."""
        return self.width if self.has_values else 8 * -(-self.width // 64)

    def encode(self, features: "Features") -> Rows:
        """Return the rows (n, row_width) of features (n, num_features).

        Raises
        ------
        InputError
            For features of another width.
        """
        if features.ndim != 2 or features.shape[1] != self.num_features:
            raise InputError(f"The refinement takes {self.num_features} features of an item, not {features.shape[1:]}.")
        rows = np.zeros((len(features), self.row_width), self.dtype)
        for first in range(0, len(features), _ROWS_PER_CHUNK):
            part = slice(first, first + _ROWS_PER_CHUNK)
            projected = (np.asarray(features[part], np.float32) - self.mean) @ self.projection
            if self.has_values:
                rows[part] = np.clip(np.rint(projected / self.step), -MAX_VALUE, MAX_VALUE)
            else:
                packed = pack(projected >= 0)
                rows[part, : packed.shape[1]] = packed
        return rows

    def to_settings(self) -> dict[str, Any]:
        """Return everything for JSON; `from_settings` reads it."""
        return {
            "kind": self.kind,
            "num_features": self.num_features,
            "width": self.width,
            "step": self.step,
            "fitted_on": self.fitted_on,
            "mean": base64.b64encode(self.mean.astype("<f4").tobytes()).decode(),
            "projection": base64.b64encode(self.projection.astype("<f2").tobytes()).decode(),
        }

    @classmethod
    def from_settings(cls, settings: dict[str, Any]) -> Self:
        """Return a refiner as it was stored.

        Raises
        ------
        InputError
            If the settings are not those of a refiner.
        """
        try:
            kind, count, width = check_kind(settings["kind"]), int(settings["num_features"]), int(settings["width"])
            mean = np.frombuffer(base64.b64decode(settings["mean"]), "<f4").reshape(count)
            projection = np.frombuffer(base64.b64decode(settings["projection"]), "<f2").reshape(count, width)
            step, fitted_on = float(settings["step"]), int(settings["fitted_on"])
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise InputError("The settings of the refinement cannot be read; run proxyhash index refine.") from error
        if (
            not 1 <= width <= MAX_WIDTH[kind]
            or not np.isfinite(mean).all()
            or not np.isfinite(projection).all()
            or step <= 0
        ):
            raise InputError("The settings of the refinement are not valid; run proxyhash index refine.")
        return cls(kind, mean.astype(np.float32), projection.astype(np.float32), step, fitted_on)
