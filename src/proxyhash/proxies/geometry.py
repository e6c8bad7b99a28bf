"""Cosines of points on a sphere, in blocks so that memory is linear in the number of points."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

_PAIRS_AT_ONCE = 4_000_000  # 16 to 32 MB of cosines


def row_blocks(rows: int, pairs_at_once: int = _PAIRS_AT_ONCE) -> list[slice]:
    """Split `rows` rows into blocks whose cosines with all rows fit the memory budget."""
    size = max(1, min(rows, pairs_at_once // rows))
    return [slice(first, min(first + size, rows)) for first in range(0, rows, size)]


def unit_rows(points: Floats) -> Floats:
    """Return the rows of `points` (C, d) scaled to length 1."""
    unit: Floats = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit


def cosine_blocks(points: Floats) -> Iterator[tuple[slice, Floats]]:
    """Yield row blocks of the cosine matrix (C, C) of `points` (C, d), in order."""
    unit = unit_rows(points)
    for rows in row_blocks(len(unit)):
        yield rows, unit[rows] @ unit.T


def mask_self(block: Floats, rows: slice) -> None:
    """Replace the cosine of each point with itself by -inf, in place."""
    block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = -np.inf


def nearest_points(points: Floats) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the index of the nearest other point (C,) and its cosine (C,) for each of C points."""
    index = np.empty(len(points), np.int64)
    cosine = np.empty(len(points))
    for rows, block in cosine_blocks(points):
        mask_self(block, rows)
        index[rows] = block.argmax(axis=1)
        cosine[rows] = np.take_along_axis(block, index[rows, None], axis=1)[:, 0]
    return index, np.clip(cosine, -1, 1)


def random_rotation(dimensions: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Return an orthogonal matrix (d, d) drawn uniformly: QR of a Gaussian matrix, signs fixed by R's diagonal."""
    q, r = np.linalg.qr(random.standard_normal((dimensions, dimensions)))
    rotation: NDArray[np.float64] = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return rotation
