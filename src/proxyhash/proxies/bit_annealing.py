"""Simulated annealing of corners by single bit flips, each evaluated in O(C).

The energy over pairs i < j is sum penalty * max(0, min_distance - D_ij)^2 + (D_ij - t_ij)^2: distances below the minimum are
penalized, and each pair may have a target distance t_ij.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.geometry import Floats
from proxyhash.utils.jit import jit

Signs = NDArray[np.float32]

_THRESHOLDS = 4096  # a power of two; the kernel masks with one less


@dataclass(frozen=True)
class AnnealingStage:
    """One temperature, the weight of distances below the minimum, and the number of flips to try."""

    temperature: float
    penalty: float
    flips: int


def pairwise_distances(signs: Floats) -> NDArray[np.float32]:
    """Return the Hamming distances (C, C) of rows of +1 and -1 (C, d)."""
    signs = np.ascontiguousarray(signs, np.float32)
    distance: NDArray[np.float32] = (signs.shape[1] - signs @ signs.T) / 2
    return distance


def smallest_distance(signs: Floats) -> int:
    """Return the smallest Hamming distance between two rows (C, d)."""
    distance = pairwise_distances(signs)
    np.fill_diagonal(distance, np.inf)
    return int(distance.min())


def anneal_bits(
    signs: Floats,
    min_distance: int,
    stages: list[AnnealingStage],
    random: np.random.Generator,
    *,
    target_distances: Floats | None = None,
    fixed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Signs:
    """Return `signs` (C, d) after annealing; the first `fixed` rows stay as they are.

    Without `target_distances` (C, C) annealing ends as soon as no distance of a row that may change is below the minimum.
    """
    bits = signs.shape[1]
    columns = np.array(signs.T, np.float32, order="C")  # transposed copy: a flip reads one bit of all rows
    distance = pairwise_distances(signs)
    pull = np.float32(0 if target_distances is None else 1)
    targets = np.zeros_like(distance) if target_distances is None else target_distances.astype(np.float32)
    np.fill_diagonal(distance, bits)  # together these cancel the term of a row with itself: 2 (D - t) + 1 = 0
    np.fill_diagonal(targets, bits + 0.5)
    state = random.integers(1, 2**63, dtype=np.uint64)
    for number, stage in enumerate(stages, start=1):
        thresholds = (stage.temperature * random.standard_exponential(_THRESHOLDS)).astype(np.float32)
        penalty = np.float32(stage.penalty)
        state = np.uint64(
            _flip_stage(
                columns, distance, targets, np.float32(min_distance), penalty, pull, fixed, thresholds, stage.flips, state
            )
        )
        if progress:
            progress(number / len(stages))
        if target_distances is None and distance[fixed:].min() >= min_distance:
            break
    return np.ascontiguousarray(columns.T)


@jit(fastmath=True, nogil=True)
def _flip_stage(
    columns: Signs,
    distance: Signs,
    targets: Signs,
    min_distance: np.float32,
    penalty: np.float32,
    pull: np.float32,
    fixed: int,
    thresholds: Signs,
    flips: int,
    state: np.uint64,
) -> np.uint64:
    """Try `flips` random flips, keeping `columns` (d, C) and `distance` (C, C) up to date in place.

    A flip is accepted if it raises the energy by at most a threshold -T log u (Metropolis rule), drawn in advance. `state`
    is the state of a 64-bit xorshift generator; it is returned.
    """
    bits, classes = columns.shape
    nothing = np.float32(0)
    for _ in range(flips):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        i = fixed + (((state >> np.uint64(44)) * np.uint64(classes - fixed)) >> np.uint64(20))
        k = (((state >> np.uint64(24)) & np.uint64(0xFFFFF)) * np.uint64(bits)) >> np.uint64(20)
        mine, row, target, column = columns[k, i], distance[i], targets[i], columns[k]
        change = nothing
        for j in range(classes):
            step = mine * column[j]  # equal bits will differ, which adds 1 to the distance
            short, after = max(nothing, min_distance - row[j]), max(nothing, min_distance - row[j] - step)
            change += penalty * (after * after - short * short) + pull * (2 * step * (row[j] - target[j]) + 1)
        if change > thresholds[state & np.uint64(_THRESHOLDS - 1)]:
            continue
        for j in range(classes):
            row[j] += mine * column[j]
            distance[j, i] = row[j]
        row[i] = bits
        columns[k, i] = -mine
    return state
