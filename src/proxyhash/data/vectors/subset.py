"""Some rows of a matrix, read on demand."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from proxyhash.data.vectors.rows import VectorRows


class RowSubset:
    """Some rows of a matrix, which may be memory-mapped; only the rows that are asked for are copied.

    Examples
    --------
    >>> subset = RowSubset(np.arange(8.0).reshape(4, 2), np.array([0, 3]))
    >>> subset.shape, subset[1:].tolist()
    ((2, 2), [[6.0, 7.0]])
    """

    ndim = 2

    def __init__(self, values: NDArray[Any], indices: NDArray[np.int64]) -> None:
        self.values, self.indices = values, indices
        self.dtype, self.shape = values.dtype, (len(indices), values.shape[1])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.indices)

    def __getitem__(self, rows: slice | NDArray[Any]) -> NDArray[Any]:
        """Return a copy of some of the rows."""
        return np.asarray(self.values[self.indices[rows]])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all rows in memory."""
        return self[:].astype(dtype or self.dtype, copy=False)


def select_rows(rows: VectorRows, indices: NDArray[np.int64]) -> VectorRows:
    """Return some of the vectors, read on demand.

    Examples
    --------
    >>> rows = VectorRows(np.eye(3, dtype=np.float32))
    >>> select_rows(rows, np.array([2]))[:].tolist()
    [[0.0, 0.0, 1.0]]
    """
    return VectorRows(RowSubset(rows.values, indices), normalize=rows.normalize, name=rows.name)  # type: ignore[arg-type]
