"""Rows of vectors as float32, read on demand and checked as they are read."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from proxyhash.utils.errors import InputError

CHUNK_ROWS = 8192  # a chunk of 768 values has 25 MB

Floats = NDArray[np.float32]


class VectorRows:
    """Vectors (N, width) in an array or a memory-mapped file, read as float32.

    Parameters
    ----------
    values
        Matrix (N, width) of float16, float32 or float64.
    normalize
        Scale every vector to length 1.
    name
        What messages call the vectors, such as the name of their file.

    Raises
    ------
    InputError
        If `values` is not a matrix of floats with at least one row and one column. Rows that are not finite, and rows of
        zeros that are to be scaled, raise when they are read.

    Examples
    --------
    >>> rows = VectorRows(np.array([[3.0, 4.0], [0.0, 2.0]], np.float16), normalize=True)
    >>> rows.shape, rows[:1].round(2).tolist()
    ((2, 2), [[0.6000000238418579, 0.800000011920929]])
    """

    dtype = np.dtype(np.float32)
    ndim = 2

    def __init__(self, values: NDArray[Any], *, normalize: bool = False, name: str = "The vectors") -> None:
        if values.ndim != 2 or values.dtype.kind != "f" or values.dtype.itemsize > 8:
            raise InputError(f"{name} must be a matrix (N, width) of floats, not {values.dtype} of shape {values.shape}.")
        if 0 in values.shape:
            raise InputError(f"{name}: there are no vectors in a matrix of shape {values.shape}.")
        self.values, self.normalize, self.name = values, normalize, name

    @property
    def shape(self) -> tuple[int, int]:
        """Return (N, width)."""
        return len(self.values), self.values.shape[1]

    @property
    def width(self) -> int:
        """Return the number of values of a vector."""
        return int(self.values.shape[1])

    def __len__(self) -> int:
        """Return N."""
        return len(self.values)

    def __getitem__(self, rows: slice | NDArray[Any]) -> Floats:
        """Return some rows (n, width), checked, and scaled if `normalize` is set."""
        values, lengths = self.raw(rows)
        return values / lengths[:, None] if self.normalize else values

    def part(self, rows: slice | NDArray[Any]) -> "VectorRows":
        """Return some rows as vectors that are read on demand."""
        return VectorRows(self.values[rows], normalize=self.normalize, name=self.name)

    def raw(self, rows: slice | NDArray[Any]) -> tuple[Floats, Floats]:
        """Return some rows (n, width), checked and not scaled, and their lengths (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):  # values that float32 does not hold are refused below
            values = np.asarray(self.values[rows], np.float32)
            lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
        if not np.isfinite(lengths).all():
            raise InputError(f"{self.name}: row {self._number(rows, ~np.isfinite(lengths)):,} is not finite, or too large.")
        if self.normalize and not lengths.all():
            row = self._number(rows, lengths == 0)
            raise InputError(f"{self.name}: row {row:,} is all zeros and has no direction; remove it, or do not normalize.")
        return values, lengths

    def _number(self, rows: slice | NDArray[Any], wrong: NDArray[np.bool_]) -> int:
        """Return the number of the first wrong row in the matrix."""
        return int(np.arange(len(self))[rows][np.flatnonzero(wrong)[0]])

    def slices(self, size: int = CHUNK_ROWS) -> Iterator[slice]:
        """Yield slices of at most `size` rows, in order."""
        return (slice(first, min(first + size, len(self))) for first in range(0, len(self), size))

    def mean(self, axis: int = 0, dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """Return the mean (width,), as numpy computes it for a matrix, in chunks."""
        assert axis == 0
        total = np.zeros(self.width, np.float64)
        for chunk in self.slices():
            total += self[chunk].sum(0, dtype=np.float64)
        return (total / len(self)).astype(dtype)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows in memory."""
        return np.concatenate([self[chunk] for chunk in self.slices()]).astype(dtype or np.float32, copy=False)
