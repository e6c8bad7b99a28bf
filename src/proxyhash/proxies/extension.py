"""Additional proxies for new classes; existing proxies do not change."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment

from proxyhash.proxies.assignment import best_swaps
from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.proxies.quality import measure_quality
from proxyhash.proxies.similarity import check_similarity
from proxyhash.proxies.tammes import spread_points
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import single_threaded_blas
from proxyhash.utils.random import generator
from proxyhash.utils.validation import check_int


def extend_proxies(proxies: ProxySet, new_classes: int, similarity: ArrayLike | None = None) -> ProxySet:
    """Add proxies for new classes to a set.

    Parameters
    ----------
    proxies
        A set of C proxies.
    new_classes
        Number of classes to add.
    similarity
        Class similarity (C + new, C + new). It decides which new class gets which new proxy; in a `joint` set it also
        moves the new proxies, down to the minimal distance of the set.

    Returns
    -------
    ProxySet
        C + `new_classes` proxies whose first C rows are those of `proxies`, bit for bit. The result depends only on the
        arguments and the seed of `proxies`.

    Raises
    ------
    InputError
        If there are too few free corners.

    Examples
    --------
    >>> from proxyhash import design_proxies
    >>> proxies = design_proxies(classes=10, bits=16, kind="code")
    >>> extend_proxies(proxies, 2).weights.shape
    (12, 16)
    """
    new = check_int("new_classes", new_classes, minimum=1)
    classes, bits = proxies.classes + new, proxies.bits
    s = None if similarity is None else check_similarity(similarity, classes)
    if proxies.binary and bits < 64 and classes > 2**bits:
        raise InputError(
            f"{classes} classes cannot have different codes of {bits} bits, of which {2**bits - proxies.classes} are left."
        )
    random = generator(proxies.seed, "extension", proxies.classes, new)
    with single_threaded_blas():
        found = (
            _complete_corners(proxies.weights, new, random)
            if proxies.binary
            else _spread_new_points(proxies.weights, new, random)
        )
        if s is not None:
            found = _match_new_classes(s, proxies.weights, found)
            found = _refine_new_corners(s, proxies, found, random) if proxies.kind == "joint" else found
    weights = np.concatenate((proxies.weights, found.astype(np.float32)))
    return ProxySet(weights, proxies.kind, proxies.seed, measure_quality(weights, s))


def _spread_new_points(old: Floats, new: int, random: np.random.Generator) -> Floats:
    """Return `new` points (new, d) on the sphere of radius sqrt(d), spread from random starts."""
    bits = old.shape[1]
    points = unit_rows(np.concatenate((old.astype(np.float64), random.standard_normal((new, bits)))))
    free: Floats = spread_points(points, fixed=len(old))[len(old) :] * np.sqrt(bits)
    return free


def _complete_corners(old: Floats, new: int, random: np.random.Generator) -> Floats:
    from proxyhash.proxies.constructions.completion import complete_code  # imports numba

    return complete_code(old, new, random)


def _match_new_classes(similarity: Floats, old: Floats, found: Floats) -> Floats:
    """Assign the new proxies (new, d) to the new classes: by similarity to the old classes, then by best swaps."""
    kept = len(old)
    pull = similarity[kept:, :kept] @ old
    _, order = linear_sum_assignment(pull @ found.T, maximize=True)
    s = similarity.copy()
    np.fill_diagonal(s, 0)
    unit = unit_rows(np.concatenate((old, found[order])).astype(s.dtype))
    places = best_swaps(s, unit, np.arange(len(unit)), fixed=kept)[kept:] - kept
    matched: Floats = found[order][places]
    return matched


def _refine_new_corners(similarity: Floats, proxies: ProxySet, found: Floats, random: np.random.Generator) -> Floats:
    from proxyhash.proxies.bit_annealing import pairwise_distances
    from proxyhash.proxies.joint import refine_corners

    rows = np.concatenate((proxies.weights, found))
    kept = proxies.classes
    distances = pairwise_distances(rows)
    np.fill_diagonal(distances, np.inf)
    min_distance = int(min(proxies.quality.min_distance, distances[kept:].min()))
    return refine_corners(similarity, rows, min_distance, random, fixed=kept)[kept:]
