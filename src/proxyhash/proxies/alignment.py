"""Binary alignment, eq. (G*): the rotation that brings points nearest to the corners of the cube, by ITQ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.binary import sign
from proxyhash.proxies.geometry import Floats, random_rotation
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Matrix = NDArray[np.float64]

_MAX_CONVERGED_SIGNS = 200_000  # with more signs ITQ does not converge, and gets the fifty iterations of its paper


@dataclass(frozen=True)
class Rotation:
    """An orthogonal `matrix` (d, d) for points in rows, and the quantization error after each iteration."""

    matrix: Matrix
    errors: tuple[float, ...]


def quantization_error(points: Floats) -> float:
    """Return sum_k ||w_k - sgn(w_k)||^2 over the rows of `points` (C, d)."""
    return float(np.square(points - sign(points)).sum())


def itq_rotation(points: Floats, start: Matrix, iterations: int = 200) -> Rotation:
    """Minimize the quantization error of rotated `points` (C, d) by iterative quantization from the rotation `start` (d, d).

    Alternates B = sgn(V R) with the best rotation for these corners, R = Z U' where B'V = U S Z' (full SVD, as B'V has
    rank C at most). Neither step increases the error; iteration ends when no sign changes.
    """
    rotation, corners, errors = start, sign(points @ start), []
    for _ in range(iterations):
        u, _, zt = np.linalg.svd(corners.T @ points)
        rotation = (u @ zt).T
        rotated = points @ rotation
        errors.append(quantization_error(rotated))
        before, corners = corners, sign(rotated)
        if np.array_equal(before, corners):
            break
    return Rotation(rotation, tuple(errors))


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
        return itq_rotation(points, random_rotation(points.shape[1], generator(seed, "alignment", start)), iterations)

    found = []
    with single_threaded_blas():
        for rotation in ordered_map(solve, range(restarts), threads or available_threads()):
            found.append(rotation)
            progress("Rotating towards the corners", len(found) / restarts)
    return min(found, key=lambda rotation: rotation.errors[-1])
