"""Soft maximum of the cosines of points on the unit sphere, and its gradient."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.geometry import Floats, mask_self, row_blocks
from proxyhash.utils.parallel import ordered_map

# Above this many points single precision is used: its 1e-7 is far below what annealing resolves, at twice the speed.
_DOUBLE_PRECISION_UP_TO = 128
_PAIRS_AT_ONCE = 1_500_000  # 6 MB of cosines per thread, about the cache of one core


@dataclass(frozen=True)
class SoftNeighbors:
    """For each of C points: the largest cosine, the soft number of neighbors, and their weighted mean (C, d)."""

    closest: NDArray[np.float64]
    count: NDArray[np.float64]
    center: Floats


def soft_neighbors(points: Floats, beta: float, threads: int = 1) -> SoftNeighbors:
    """Weight the neighbors of each unit point w_i by exp(beta (w_i.w_j - max_k w_i.w_k)), j != i.

    The cosine matrix is computed in row blocks, so memory is linear in C; results do not depend on the threads.
    """
    precision = np.float64 if len(points) <= _DOUBLE_PRECISION_UP_TO else np.float32
    unit = np.ascontiguousarray(points, dtype=precision)
    blocks = row_blocks(len(unit), _PAIRS_AT_ONCE)
    closest, count = np.empty(len(unit)), np.empty(len(unit))
    center = np.empty_like(unit)

    def work(mine: list[slice]) -> None:
        buffer = np.empty(
            (blocks[0].stop, len(unit)), precision
        )  # reused, because allocating it takes as long as the exponentials
        for rows in mine:
            weights = buffer[: rows.stop - rows.start]
            np.matmul(unit[rows], unit.T, out=weights)
            mask_self(weights, rows)
            peak = weights.max(axis=1, keepdims=True)
            weights -= peak
            weights *= precision(beta)
            np.exp(weights, out=weights)
            total = weights.sum(axis=1, keepdims=True)
            center[rows] = (weights @ unit) / total
            closest[rows], count[rows] = peak[:, 0], total[:, 0]

    for _ in ordered_map(work, [blocks[first::threads] for first in range(min(threads, len(blocks)))], threads):
        pass
    return SoftNeighbors(closest, count, center)


def soft_max_cosine(points: Floats, beta: float) -> tuple[float, NDArray[np.float64]]:
    """Return log(sum_{i != j} exp(beta w_i.w_j)) / beta over unit points (C, d), and its gradient (C, d).

    An upper bound on the largest cosine that becomes tight as beta grows, for eq. (tammes).
    """
    near = soft_neighbors(points, beta)
    peak = near.closest.max()
    mass = near.count * np.exp(beta * (near.closest - peak))
    total = mass.sum()
    gradient = (2 * mass / total)[:, None] * near.center
    return float(peak + np.log(total) / beta), gradient.astype(np.float64)


def tangent(vectors: Floats, points: Floats) -> Floats:
    """Project `vectors` (C, d) to the tangent spaces at the unit `points` (C, d)."""
    along = np.einsum("ij,ij->i", vectors, points)[:, None]
    flat: Floats = vectors - along * points
    return flat
