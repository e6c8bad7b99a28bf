"""The front door: from a number of classes and bits to a measured proxy set."""

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.proxies.assignment import SOLVERS
from proxyhash.proxies.bounds.assignment import cosine_sums
from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.proxies.kinds import Brief, Kind, find_kind
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.proxies.quality import measure
from proxyhash.proxies.recommended import AUTO, recommended
from proxyhash.proxies.similarity import checked_similarity
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.parallel import single_threaded_blas
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int


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
    floor: int | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> ProxySet:
    """Decide where each of C classes sits in Hamming space: a `ProxySet` of weights (C, d), row norm sqrt(d), and quality.

    `kind` is one of `list_kinds()`, or `auto`: the one that measured best for such a set. `similarity` (C, C) says how
    alike the classes are: `shclm`, `scode` and `joint` give similar classes similar proxies, and the quality of every kind
    then reports how well it follows them. The same seed gives the same set on any number of `threads`, and the paper's
    kinds of one seed are stages of one design. `tammes_restarts` and `rotation_restarts` are how many random starts the
    packing and the rotation get; `solver` is the assignment's: `anneal`, `greedy` (the paper's) or `faq`; `floor` is the
    distance in bits below which `joint` puts no two classes, by default three quarters of what `code` reaches.

    >>> proxies = design_proxies(classes=10, bits=16, kind="hclm")
    >>> proxies.weights.shape, proxies.binary
    ((10, 16), True)
    """
    brief = Brief(
        classes=check_int("classes", classes, minimum=2),
        bits=check_int("bits", bits, minimum=1),
        seed=check_int("seed", seed, minimum=0),
        similarity=None if similarity is None else checked_similarity(similarity, classes),
        tammes_restarts=_optional("tammes_restarts", tammes_restarts),
        rotation_restarts=check_int("rotation_restarts", rotation_restarts, minimum=1),
        solver=solver,
        floor=_optional("floor", floor),
        threads=_optional("threads", threads),
        progress=progress,
    )
    if kind == AUTO:
        kind, brief = recommended(brief)
    recipe = find_kind(kind)
    _refuse_the_impossible(recipe, brief)
    with single_threaded_blas():
        weights = _scaled(recipe.build(brief))
    _warn_of_the_meaningless(recipe, brief, weights)
    return ProxySet(weights, recipe.name, brief.seed, measure(weights, brief.similarity))


def _optional(name: str, value: int | None) -> int | None:
    return None if value is None else check_int(name, value, minimum=1)


def _refuse_the_impossible(recipe: Kind, brief: Brief) -> None:
    if recipe.binary and brief.bits < 64 and brief.classes > 2**brief.bits:
        raise InputError(
            f"{brief.classes} classes cannot have different codes of {brief.bits} bits, of which there are "
            f"{2**brief.bits}: use at least {(brief.classes - 1).bit_length()} bits."
        )
    if brief.solver not in SOLVERS:
        raise InputError(f"There is no assignment solver {brief.solver!r}; choose from {', '.join(SOLVERS)}.")


def _warn_of_the_meaningless(recipe: Kind, brief: Brief, weights: Floats) -> None:
    if recipe.semantic is None:
        return
    if brief.similarity is None:
        message = (
            f"Without a class similarity, {recipe.name} has nothing to match proxies by and is the same set as "
            f"{recipe.semantic}."
        )
        warnings.warn(message, ProxyhashWarning, stacklevel=3)
    elif equidistant(weights):
        message = "All proxies are equally far apart, so every assignment to classes is as good as any other."
        warnings.warn(message, ProxyhashWarning, stacklevel=3)


def equidistant(weights: Floats) -> bool:
    """Tell whether all pairs of proxies (C, d) have the same cosine: their variance over pairs vanishes."""
    unit = unit_rows(weights.astype(np.float64))
    pairs = len(unit) * (len(unit) - 1)
    total, squares = cosine_sums(unit)
    return squares / pairs - (total / pairs) ** 2 < 1e-9


def _scaled(directions: Floats) -> NDArray[np.float32]:
    """Give every row the length sqrt(d): corners of the cube keep their exact +1 and -1."""
    if np.abs(directions).min() == np.abs(directions).max() == 1:
        return directions.astype(np.float32)
    scaled: NDArray[np.float32] = (unit_rows(directions) * np.sqrt(directions.shape[1])).astype(np.float32)
    return scaled
