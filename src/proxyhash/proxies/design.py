"""Design of a proxy set from a number of classes and bits."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.proxies.assignment import SOLVERS
from proxyhash.proxies.bounds.assignment import cosine_sums
from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.proxies.kinds import DISTANCE_SHARE, DesignConfig, ProxyKind, get_kind
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.proxies.quality import measure_quality
from proxyhash.proxies.similarity import check_similarity
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.parallel import single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

AUTO = "auto"


def design_proxies(
    classes: int,
    bits: int,
    kind: str = "shclm",
    similarity: ArrayLike | None = None,
    seed: int = 0,
    *,
    tammes_restarts: int | None = None,
    rotation_restarts: int = 20,
    solver: str = "anneal",
    min_distance: int | None = None,
    distance_share: float | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> ProxySet:
    """Design one proxy for each class.

    The sets `tammes`, `aligned`, `hclm` and `shclm` of one seed are stages of one design.

    Parameters
    ----------
    classes
        Number of classes C, at least 2.
    bits
        Number of bits d, at least 1.
    kind
        One of `list_kinds()`, or `auto`: with a similarity `joint` (`scode` beyond 12,000 classes), otherwise `code`.
    similarity
        Class similarity (C, C), symmetric. `shclm`, `scode` and `joint` give similar classes similar proxies; the quality
        of every kind reports how well the proxies follow it.
    seed
        The same seed gives the same set for any number of threads.
    tammes_restarts
        Number of random starts of the packing; by default chosen by the number of classes.
    rotation_restarts
        Number of random starts of the rotation.
    solver
        Solver of the assignment: `anneal`, `greedy` (the paper's) or `faq`.
    min_distance
        Minimal distance between two classes of a `joint` set, in bits.
    distance_share
        The same as a share of the minimal distance of `code`, used if `min_distance` is None; 0.5 by default.
    threads
        Number of threads; by default all cores.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    ProxySet
        Weights (C, d) with rows of norm sqrt(d), and their quality.

    Raises
    ------
    InputError
        If there are too few corners for so many classes, or an argument is out of range.

    Examples
    --------
    >>> proxies = design_proxies(classes=10, bits=16, kind="hclm")
    >>> proxies.weights.shape, proxies.binary
    ((10, 16), True)
    """
    config = DesignConfig(
        classes=check_int("classes", classes, 2),
        bits=check_int("bits", bits, 1),
        seed=check_int("seed", seed, 0),
        similarity=None if similarity is None else check_similarity(similarity, classes),
        tammes_restarts=_check_optional("tammes_restarts", tammes_restarts),
        rotation_restarts=check_int("rotation_restarts", rotation_restarts, 1),
        solver=solver,
        min_distance=_check_optional("min_distance", min_distance),
        distance_share=_check_share(distance_share),
        threads=_check_optional("threads", threads),
        progress=progress,
    )
    proxy_kind = get_kind(recommended_kind(config) if kind == AUTO else kind)
    _check_feasible(proxy_kind, config)
    with single_threaded_blas():
        weights = _scale_rows(proxy_kind.build(config))
    _warn_if_similarity_is_unused(proxy_kind, config, weights)
    return ProxySet(weights, proxy_kind.name, config.seed, measure_quality(weights, config.similarity))


def recommended_kind(config: DesignConfig) -> str:
    """Return the kind with the best results on seen and unseen classes together, see docs/results.md.

    With a similarity that is `joint`: it loses less than a point of mAP on seen classes to the best kind there, and gains
    several points on unseen ones. It holds all pairs of classes in memory, so more classes get `scode`.
    """
    if config.similarity is None:
        return "code"
    from proxyhash.proxies.joint import MAX_CLASSES  # imports numba

    return "joint" if config.classes <= MAX_CLASSES else "scode"


def _check_optional(name: str, value: int | None) -> int | None:
    return None if value is None else check_int(name, value, 1)


def _check_share(share: float | None) -> float:
    if share is None:
        return DISTANCE_SHARE
    if not 0 < share <= 1:
        raise InputError(f"distance_share is a share of the largest minimal distance, above 0 and up to 1, not {share}.")
    return share


def _check_feasible(kind: ProxyKind, config: DesignConfig) -> None:
    if kind.binary and config.bits < 64 and config.classes > 2**config.bits:
        raise InputError(
            f"{config.classes} classes cannot have different codes of {config.bits} bits, of which there are "
            f"{2**config.bits}: use at least {(config.classes - 1).bit_length()} bits."
        )
    if config.solver not in SOLVERS:
        raise InputError(f"There is no assignment solver {config.solver!r}; choose from {', '.join(SOLVERS)}.")


def _warn_if_similarity_is_unused(kind: ProxyKind, config: DesignConfig, weights: Floats) -> None:
    if not kind.uses_similarity:
        return
    if config.similarity is None:
        message = f"Without a class similarity, {kind.name} is the same set as {kind.without_similarity}."
        warnings.warn(message, ProxyhashWarning, stacklevel=3)
    elif is_equidistant(weights):
        message = "All proxies are equally far apart, so every assignment to classes has the same objective."
        warnings.warn(message, ProxyhashWarning, stacklevel=3)


def is_equidistant(weights: Floats) -> bool:
    """Return whether all pairs of proxies (C, d) have the same cosine, that is variance 0 over pairs."""
    unit = unit_rows(weights.astype(np.float64))
    pairs = len(unit) * (len(unit) - 1)
    total, squares = cosine_sums(unit)
    return squares / pairs - (total / pairs) ** 2 < 1e-9


def _scale_rows(directions: Floats) -> NDArray[np.float32]:
    """Scale every row to length sqrt(d); corners of the cube keep their exact +1 and -1."""
    if np.abs(directions).min() == np.abs(directions).max() == 1:
        return directions.astype(np.float32)
    scaled: NDArray[np.float32] = (unit_rows(directions) * np.sqrt(directions.shape[1])).astype(np.float32)
    return scaled
