"""The Tammes problem, eq. (tammes): C points on the unit sphere of R^d with the largest minimal distance."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from proxyhash.proxies.bounds.sphere import least_max_cosine
from proxyhash.proxies.geometry import Floats, nearest_points, random_rotation, unit_rows
from proxyhash.proxies.repulsion import soft_max_cosine, soft_neighbors, tangent
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Points = Floats

_OPTIMAL_WITHIN = 1e-5  # tolerance to the bound on the largest cosine, that of single precision
_STARTS_SHARE_CORES_FROM = 300  # with fewer points, the interpreter's lock makes threads slower
_ANNEAL_UP_TO = 4_000  # with more points a start would take minutes; `spread_points` replaces it
_SPREAD_PAIRS = 1.6e10  # pairs evaluated by `spread_points`: about 100 s on two cores at 128 dimensions

Listener = Callable[[float], None]


def ignore_progress(fraction: float) -> None:
    """Do nothing: the default listener."""


@dataclass(frozen=True)
class BetaSchedule:
    """Schedule of beta: `stages` stages from `first`, each `growth` times the last, with `steps` L-BFGS steps each."""

    first: float = 1.0  # starts at 8 or more end in poor packings
    growth: float = 2.0
    stages: int = 15  # up to 2^14, where the soft maximum is a thousandth of a bit above the maximum
    steps: int = 100


_DEFAULT_SCHEDULE = BetaSchedule()
_POLISH = BetaSchedule(first=64.0, stages=9, steps=50)  # starts with a large beta, so that the code is not lost


def tammes(
    classes: int,
    dimensions: int,
    *,
    restarts: int | None = None,
    start: str = "random",
    seed: int = 0,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Points:
    """Return C well-separated unit points (C, d), the best of `restarts` random starts, in a random rotation.

    The problem is not convex (the norms are equalities), so each start is annealed: the log-sum-exp of all cosines is
    minimized while its sharpness rises. A start that meets the bound of `least_max_cosine` ends the search. The result
    depends on the seed alone, not on the number of threads.

    With `start="algebraic"` there is one start, the best binary code, which for hundreds of points is better than what
    random starts lead to; needs C <= 2^d.
    """
    threads = threads or available_threads()
    if start not in ("random", "algebraic"):
        raise InputError(f"There is no start {start!r}; choose from random, algebraic.")
    if start == "algebraic" and classes > 2 ** min(dimensions, 63):
        raise InputError(f"There are only {2**dimensions} corners in {dimensions} dimensions, too few for {classes} points.")
    if dimensions == 1:  # the sphere is two points and nothing can move
        return np.where(np.arange(classes) % 2, -1.0, 1.0)[:, None]
    with single_threaded_blas():
        if start == "algebraic":
            points = _polish_code(classes, dimensions, seed, progress)
        else:
            points = _best_start(classes, dimensions, restarts or default_restarts(classes), seed, threads, progress)
        return points @ random_rotation(dimensions, generator(seed, "tammes", "rotation"))


def default_restarts(classes: int) -> int:
    """Return the default number of random starts; only small problems have bad local optima."""
    return 6 if classes <= 300 else 2 if classes <= _ANNEAL_UP_TO else 1


def _polish_code(classes: int, dimensions: int, seed: int, progress: Progress) -> Points:
    """Return the unit points of the best binary code, annealed if that improves them."""
    from proxyhash.proxies.constructions import best_code  # imports numba

    points = unit_rows(best_code(classes, dimensions, seed).astype(np.float64))
    if classes > _ANNEAL_UP_TO:
        return points
    goal = least_max_cosine(classes, dimensions) + _OPTIMAL_WITHIN
    polished = anneal_points(points, _POLISH, goal=goal, progress=lambda fraction: progress("Polishing a code", fraction))
    return min(points, polished, key=lambda found: float(nearest_points(found)[1].max()))


def _best_start(classes: int, dimensions: int, restarts: int, seed: int, threads: int, progress: Progress) -> Points:
    goal = least_max_cosine(classes, dimensions) + _OPTIMAL_WITHIN
    done = [0.0] * restarts

    def solve(start: int) -> tuple[float, Points]:
        def listen(fraction: float) -> None:
            done[start] = fraction
            progress("Packing points on the sphere", sum(done) / restarts)

        points = unit_rows(generator(seed, "tammes", start).standard_normal((classes, dimensions)))
        if classes > _ANNEAL_UP_TO:
            points = spread_points(points, threads=threads, progress=listen)
        else:
            points = anneal_points(points, goal=goal, progress=listen)
        return float(nearest_points(points)[1].max()), points

    parallel_starts = threads if _STARTS_SHARE_CORES_FROM <= classes <= _ANNEAL_UP_TO else 1
    best: tuple[float, Points] = (2.0, np.empty(0))
    for found in ordered_map(solve, range(restarts), parallel_starts):
        best = min(best, found, key=lambda result: result[0])
        if best[0] <= goal:
            break
    progress("Packing points on the sphere", 1.0)
    return best[1]


def anneal_points(
    points: Points, schedule: BetaSchedule = _DEFAULT_SCHEDULE, *, goal: float = -1.0, progress: Listener = ignore_progress
) -> Points:
    """Minimize `soft_max_cosine` from `points` (C, d) by L-BFGS while beta rises; stop early at max cosine `goal`."""
    shape = points.shape

    def objective(flat: Points, beta: float) -> tuple[float, Points]:
        lengths = np.linalg.norm(flat.reshape(shape), axis=1, keepdims=True)
        unit = flat.reshape(shape) / lengths
        value, gradient = soft_max_cosine(unit, beta)
        return value, (tangent(gradient, unit) / lengths).ravel()

    limits = {"maxiter": schedule.steps, "maxfun": 2 * schedule.steps, "gtol": 1e-7, "ftol": 1e-10}
    for stage in range(schedule.stages):
        beta = schedule.first * schedule.growth**stage
        found = minimize(objective, points.ravel(), (beta,), method="L-BFGS-B", jac=True, options=limits)
        points = unit_rows(found.x.reshape(shape))
        progress((stage + 1) / schedule.stages)
        if nearest_points(points)[1].max() <= goal:
            break
    return points


def spread_points(points: Points, *, fixed: int = 0, threads: int = 1, progress: Listener = ignore_progress) -> Points:
    """Push each of many points (C, d) away from its nearest neighbors, with momentum and rising beta.

    The first `fixed` points do not move. Every other point moves in every step, unlike with the gradient of the soft
    maximum, which moves only the worst pairs; dozens of steps replace hundreds of L-BFGS. The constants are the best of a
    small grid at (10000, 128).
    """
    steps = int(np.clip(_SPREAD_PAIRS / len(points) ** 2, 20, 150))
    speed = np.zeros_like(points)
    for step, way in enumerate(np.linspace(0, 1, steps), start=1):
        near = soft_neighbors(points, 16 * (500 / 16) ** way, threads)
        push = tangent(near.center, points)
        speed = tangent(0.85 * speed - 0.03**way * push, points)
        speed[:fixed] = 0
        points = np.concatenate((points[:fixed], unit_rows(points + speed)[fixed:]))
        progress(step / steps)
    return points
