"""Distance and meaning together: bits chosen so that no two classes are nearer than a floor and similar classes are near.

A code of the largest distance is nearly equidistant and leaves an assignment little to choose from. Below that distance
there is room: each pair gets a wished distance that falls with its similarity, never below the floor, and bits are annealed
towards the wishes.
"""

from collections.abc import Callable

import numpy as np

from proxyhash.proxies.bit_flips import Signs, Stage, flipped, least_distance
from proxyhash.proxies.geometry import Floats
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

MOST_CLASSES = 12_000  # a distance and a wish for each pair are 1.2 GB
_WORK = "Placing classes by distance and similarity"
_SPREAD = 0.9  # of wished distances, in standard deviations of the distance of random words, sqrt(d) / 2
_STAGES = 60
_PAIRS_LOOKED_AT = 1.5e10  # by all flips together: about 15 s
_MOST_SWEEPS, _FEWEST_SWEEPS = 3_000, 20  # flips tried for each bit
# Temperatures in units of sqrt(C d), the order of what a flip of a random set changes; and the price of a missing bit in
# units of sqrt(C), which rises so that at first distances may fall short.
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 1.5, 0.02
_FIRST_PRICE, _LAST_PRICE = 5.0, 200.0
_NEVER = 1e6  # a price that no flip can afford


def share_of(distance: int, share: float) -> int:
    """Return a share of the minimal distance of a code, in whole bits, as a floor."""
    return max(1, int(share * distance + 0.5))


def checked_floor(floor: int | None, code: Floats, share: float) -> int:
    """Return the floor to keep, a share of what `code` (C, d) reaches if none is asked for; a higher one is an error."""
    from proxyhash.proxies.constructions import minimal_distance

    classes, bits = code.shape
    if classes > MOST_CLASSES:
        raise InputError(f"joint holds all pairs of classes, so it is for at most {MOST_CLASSES:,} of them: use scode.")
    reached = minimal_distance(code)
    if floor is not None and floor > reached:
        raise InputError(
            f"A floor of {floor} bits is out of reach for {classes} classes in {bits} bits: ask for at most {reached}."
        )
    return share_of(reached, share) if floor is None else floor


def wished_distances(similarity: Floats, bits: int, floor: int) -> Floats:
    """Return the distance (C, C) to wish for each pair: d / 2 at the mean similarity, less above it, at least the floor."""
    pairs = similarity[np.triu_indices(len(similarity), k=1)]
    spread = float(pairs.std())
    standardized = (similarity - pairs.mean()) / spread if spread > 0 else np.zeros_like(similarity)
    wishes: Floats = np.maximum(floor, bits / 2 - _SPREAD * np.sqrt(bits) / 2 * standardized)
    return wishes


def joint_corners(
    similarity: Floats,
    bits: int,
    floor: int,
    code: Callable[[], Floats],
    *,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Signs:
    """Return corners (C, d) at least `floor` bits apart whose distances follow `similarity` (C, C).

    Bits are annealed from a random start. Should they end below the floor, they are annealed once more from the set that
    `code` returns, which keeps it, without ever going below.
    """
    classes = len(similarity)
    random = generator(seed, "joint")

    def listen(fraction: float) -> None:
        progress(_WORK, fraction)

    start = np.where(random.random((classes, bits)) < 0.5, -1.0, 1.0)
    wishes = wished_distances(similarity, bits, floor)
    found = flipped(start, floor, _stages(classes, bits), random, wishes=wishes, progress=listen)
    return found if least_distance(found) >= floor else following_corners(similarity, code(), floor, random)


def following_corners(similarity: Floats, start: Floats, floor: int, random: np.random.Generator, fixed: int = 0) -> Signs:
    """Return corners that follow `similarity` (C, C) from `start` (C, d), without ever going below the floor it keeps.

    The first `fixed` rows stay as they are, and the distances between them do not matter.
    """
    classes, bits = start.shape
    patient = [Stage(stage.temperature, _NEVER, stage.flips) for stage in _stages(classes, bits)[_STAGES // 2 :]]
    return flipped(start, floor, patient, random, wishes=wished_distances(similarity, bits, floor), fixed=fixed)


def _stages(classes: int, bits: int) -> list[Stage]:
    """Return falling temperatures and rising prices, and as many flips as the time allows."""
    sweeps = np.clip(_PAIRS_LOOKED_AT / (classes**2 * bits), _FEWEST_SWEEPS, _MOST_SWEEPS)
    flips = max(1, int(sweeps * classes * bits / _STAGES))
    temperatures = np.sqrt(classes * bits) * np.geomspace(_FIRST_TEMPERATURE, _LAST_TEMPERATURE, _STAGES)
    prices = np.sqrt(classes) * np.geomspace(_FIRST_PRICE, _LAST_PRICE, _STAGES)
    return [Stage(float(t), float(mu), flips) for t, mu in zip(temperatures, prices, strict=True)]
