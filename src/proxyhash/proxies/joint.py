"""Corners that keep a minimal distance and follow the class similarity.

A code of the largest distance is nearly equidistant, so an assignment can change little. Below that distance there is room:
each pair of classes gets a target distance that decreases with its similarity, down to the minimal distance, and bits are
annealed towards the targets.
"""

from collections.abc import Callable

import numpy as np

from proxyhash.proxies.bit_annealing import AnnealingStage, Signs, anneal_bits, smallest_distance
from proxyhash.proxies.geometry import Floats
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

MAX_CLASSES = 12_000  # a distance and a target for each pair take 1.2 GB
_WORK = "Optimizing distances and similarity"
_SPREAD = 0.9  # of target distances, in standard deviations of the distance of random words, sqrt(d) / 2
_STAGES = 60
_MAX_PAIRS = 1.5e10  # compared by all flips together: about 15 s
_MAX_SWEEPS, _MIN_SWEEPS = 3_000, 20  # flips tried for each bit
# Temperatures in units of sqrt(C d), the typical change of energy by one flip. Penalties in units of sqrt(C);
# they rise, so that distances may be too small at first.
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 1.5, 0.02
_FIRST_PENALTY, _LAST_PENALTY = 5.0, 200.0
_FORBIDDEN = 1e6  # a penalty that rejects every flip below the minimal distance


def share_of_distance(distance: int, share: float) -> int:
    """Return a share of the minimal distance of a code in whole bits, at least 1; halves are rounded to even."""
    return max(1, round(share * distance))


def resolve_min_distance(min_distance: int | None, code: Floats, share: float) -> int:
    """Return `min_distance`, or if None a share of the distance of `code` (C, d), which it may not exceed."""
    from proxyhash.proxies.constructions import minimal_distance

    classes, bits = code.shape
    if classes > MAX_CLASSES:
        raise InputError(f"joint holds all pairs of classes, so it is for at most {MAX_CLASSES:,} of them: use scode.")
    reached = minimal_distance(code)
    if min_distance is not None and min_distance > reached:
        raise InputError(
            f"A minimal distance of {min_distance} bits is out of reach for {classes} classes in {bits} bits: "
            f"ask for at most {reached}."
        )
    return share_of_distance(reached, share) if min_distance is None else min_distance


def target_distances(similarity: Floats, bits: int, min_distance: int) -> Floats:
    """Return target distances (C, C): d / 2 at the mean similarity, smaller above it, at least `min_distance`."""
    pairs = similarity[np.triu_indices(len(similarity), k=1)]
    spread = float(pairs.std())
    standardized = (similarity - pairs.mean()) / spread if spread > 0 else np.zeros_like(similarity)
    targets: Floats = np.maximum(min_distance, bits / 2 - _SPREAD * np.sqrt(bits) / 2 * standardized)
    return targets


def joint_corners(
    similarity: Floats,
    bits: int,
    min_distance: int,
    code: Callable[[], Floats],
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Signs:
    """Return corners (C, d) with at least `min_distance` between any two whose distances follow `similarity` (C, C)."""
    targets = target_distances(similarity, bits, min_distance)
    return corners_at_distances(targets, bits, min_distance, code, generator(seed, "joint"), progress)


def corners_at_distances(
    targets: Floats,
    bits: int,
    min_distance: int,
    code: Callable[[], Floats],
    random: np.random.Generator,
    progress: Progress = no_progress,
) -> Signs:
    """Return corners (C, d) with at least `min_distance` between any two and distances near `targets` (C, C).

    The sum of squared differences to the targets, which must be symmetric, is annealed from a random start. If the result
    violates the minimal distance, it is annealed again from the set that `code` returns, which satisfies it, and violations
    are rejected.
    """
    classes = len(targets)

    def listen(fraction: float) -> None:
        progress(_WORK, fraction)

    start = np.where(random.random((classes, bits)) < 0.5, -1.0, 1.0)
    found = anneal_bits(start, min_distance, _stages(classes, bits), random, target_distances=targets, progress=listen)
    if smallest_distance(found) >= min_distance:
        return found
    return anneal_bits(code(), min_distance, _strict_stages(classes, bits), random, target_distances=targets)


def refine_corners(
    similarity: Floats, start: Floats, min_distance: int, random: np.random.Generator, fixed: int = 0
) -> Signs:
    """Anneal `start` (C, d), which keeps `min_distance`, towards `similarity` (C, C) without going below it.

    The first `fixed` rows do not change, and the distances between them are ignored.
    """
    classes, bits = start.shape
    targets = target_distances(similarity, bits, min_distance)
    return anneal_bits(start, min_distance, _strict_stages(classes, bits), random, target_distances=targets, fixed=fixed)


def _strict_stages(classes: int, bits: int) -> list[AnnealingStage]:
    """Return the cooler half of the stages, without flips below the minimal distance."""
    return [AnnealingStage(stage.temperature, _FORBIDDEN, stage.flips) for stage in _stages(classes, bits)[_STAGES // 2 :]]


def _stages(classes: int, bits: int) -> list[AnnealingStage]:
    """Return stages of falling temperature and rising penalty, with as many flips as `_MAX_PAIRS` allows."""
    sweeps = np.clip(_MAX_PAIRS / (classes**2 * bits), _MIN_SWEEPS, _MAX_SWEEPS)
    flips = max(1, int(sweeps * classes * bits / _STAGES))
    temperatures = np.sqrt(classes * bits) * np.geomspace(_FIRST_TEMPERATURE, _LAST_TEMPERATURE, _STAGES)
    penalties = np.sqrt(classes) * np.geomspace(_FIRST_PENALTY, _LAST_PENALTY, _STAGES)
    return [AnnealingStage(float(t), float(mu), flips) for t, mu in zip(temperatures, penalties, strict=True)]
