"""Binary alignment, eq. (G*): the rotation that brings points nearest to the corners of the cube, by ITQ."""

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.binary import sign
from proxyhash.proxies.geometry import Floats, random_rotation
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Matrix = NDArray[np.float64]

_CHUNK_VALUES = 1 << 19  # of points that a thread works on at once: 4 MB, which stay in the cache
_MAX_CONVERGED_SIGNS = 200_000  # with more signs ITQ does not converge, and gets the fifty iterations of its paper


@dataclass(frozen=True)
class Rotation:
    """An orthogonal `matrix` (d, d) for points in rows, and the quantization error after each iteration."""

    matrix: Matrix
    errors: tuple[float, ...]


def quantization_error(points: Floats) -> float:
    """Return sum_k ||w_k - sgn(w_k)||^2 over the rows of `points` (C, d)."""
    return float(np.square(points - sign(points)).sum())


def itq_rotation(points: Floats, start: Matrix, iterations: int = 200, *, threads: int | None = None) -> Rotation:
    """Minimize the quantization error of rotated `points` (C, d) by iterative quantization from the rotation `start` (d, d).

    Alternates B = sgn(V R) with the best rotation for these corners, R = Z U' where B'V = U S Z' (full SVD, as B'V has
    rank C at most). Neither step increases the error; iteration ends when no sign changes. Of many points, threads work on
    chunks; the result does not depend on their number.
    """
    rows = max(1, _CHUNK_VALUES // points.shape[1])
    chunks = [slice(first, first + rows) for first in range(0, len(points), rows)]
    threads = min(threads or available_threads(), len(chunks))
    rotation, errors, positive = start, [], np.zeros(points.shape, bool)
    with single_threaded_blas() if len(chunks) > 1 else nullcontext():
        product = _nearest_corners(points, start, positive, chunks, threads).product
        for _ in range(iterations):
            u, _, zt = np.linalg.svd(product)
            rotation = (u @ zt).T
            nearest = _nearest_corners(points, rotation, positive, chunks, threads)
            product = nearest.product
            errors.append(nearest.error)
            if not nearest.changed:
                break
    return Rotation(rotation, tuple(errors))


@dataclass(frozen=True)
class _NearestCorners:
    """B'V (d, d) of the corners B = sgn(V R), their quantization error, and whether a sign changed."""

    product: Matrix
    error: float
    changed: bool


def _nearest_corners(
    points: Floats, rotation: Matrix, positive: NDArray[np.bool_], chunks: list[slice], threads: int
) -> _NearestCorners:
    """Return the corners of rotated points; `positive` (C, d) holds their signs, and is updated."""

    def solve(rows: slice) -> _NearestCorners:
        rotated = points[rows] @ rotation
        corners = sign(rotated)
        before, positive[rows] = positive[rows].copy(), corners > 0
        rotated -= corners
        error = float(np.square(rotated, out=rotated).sum())
        return _NearestCorners(corners.T @ points[rows], error, not np.array_equal(before, positive[rows]))

    first, *others = ordered_map(solve, chunks, threads)
    total = first.product.astype(np.float64)
    for each in others:
        total += each.product
    found = (first, *others)
    return _NearestCorners(total, sum(each.error for each in found), any(each.changed for each in found))


def best_rotation(
    points: Floats,
    *,
    restarts: int = 20,
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Rotation:
    """Return the `itq_rotation` of least error among `restarts` random starts; independent of the number of threads."""

    iterations = 200 if points.size <= _MAX_CONVERGED_SIGNS else 50

    def solve(start: int) -> Rotation:
        turned = random_rotation(points.shape[1], generator(seed, "alignment", start))
        return itq_rotation(points, turned, iterations, threads=1)

    found = []
    with single_threaded_blas():
        for rotation in ordered_map(solve, range(restarts), threads or available_threads()):
            found.append(rotation)
            progress("Rotating towards the corners", len(found) / restarts)
    return min(found, key=lambda rotation: rotation.errors[-1])
