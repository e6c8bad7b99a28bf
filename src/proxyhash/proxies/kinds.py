"""The kinds of proxy sets, each a short recipe over the steps beside this file."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from proxyhash.proxies.alignment import best_rotation
from proxyhash.proxies.assignment import assign
from proxyhash.proxies.binary import distinct_corners
from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.proxies.tammes import tammes
from proxyhash.utils.cache import ArrayCache
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator

Weights = Floats

FLOOR_SHARE = 0.75  # of the distance that `code` reaches, under `joint`: a prototype had both distance and correlation there

STAGES = ArrayCache(16)  # packings and their rotations: whoever compares the paper's kinds asks for the same ones again


@dataclass(frozen=True)
class Brief:
    """What a recipe is told: C classes, d bits, the similarity of the classes if known, and how hard to try."""

    classes: int
    bits: int
    seed: int = 0
    similarity: Floats | None = None
    tammes_restarts: int | None = None  # None: as many as the size of the problem deserves
    rotation_restarts: int = 20  # the notes' advice: results depend on the start
    solver: str = "anneal"
    floor: int | None = None  # None: a share of the distance that `code` reaches
    floor_share: float = FLOOR_SHARE
    threads: int | None = None  # None: all cores
    progress: Progress = field(default=no_progress, repr=False)


@dataclass(frozen=True)
class Kind:
    """A named recipe: directions (C, d) for a brief.

    `binary` ones give entries of +1 and -1; a `semantic` one follows the class similarity, and without it is the set of
    the kind named here.
    """

    name: str
    summary: str
    build: Callable[[Brief], Weights]
    binary: bool = False
    semantic: str | None = None


_KINDS: dict[str, Kind] = {}


def kind(
    name: str, summary: str, *, binary: bool = False, semantic: str | None = None
) -> Callable[[Callable[[Brief], Weights]], Kind]:
    """Register a recipe under `name`."""

    def register(build: Callable[[Brief], Weights]) -> Kind:
        _KINDS[name] = Kind(name, summary, build, binary, semantic)
        return _KINDS[name]

    return register


def list_kinds() -> list[str]:
    """Return the names of all kinds of proxy sets.

    >>> "shclm" in list_kinds()
    True
    """
    return list(_KINDS)


def find_kind(name: str) -> Kind:
    """Return the kind called `name`; an unknown name is answered with the known ones."""
    if name not in _KINDS:
        raise InputError(f"There is no proxy kind {name!r}; choose from {', '.join(_KINDS)}.")
    return _KINDS[name]


def _gaussian_directions(brief: Brief, purpose: str) -> Weights:
    shape = (brief.classes, brief.bits)
    return unit_rows(generator(brief.seed, purpose).standard_normal(shape))


@kind("learned", "random directions that training is free to move: an ordinary classifier")
def learned(brief: Brief) -> Weights:
    """Return an initialization; whoever trains with this kind learns the proxies."""
    return _gaussian_directions(brief, "learned")


@kind("random", "random directions, fixed")
def random(brief: Brief) -> Weights:
    """Return normalized Gaussian vectors."""
    return _gaussian_directions(brief, "random")


@kind("tammes", "as far apart on the sphere as can be found, in a random rotation, eq. (tammes)")
def sphere(brief: Brief) -> Weights:
    """Return the best packing of several random starts."""
    key = ("tammes", brief.classes, brief.bits, brief.seed, brief.tammes_restarts)
    return STAGES.get(
        key,
        lambda: tammes(
            brief.classes,
            brief.bits,
            restarts=brief.tammes_restarts,
            seed=brief.seed,
            threads=brief.threads,
            progress=brief.progress,
        ),
    )


@kind("aligned", "tammes, rotated towards the corners of the cube, eq. (G*)")
def aligned(brief: Brief) -> Weights:
    """Return the packing in the rotation of least quantisation error."""
    key = ("aligned", brief.classes, brief.bits, brief.seed, brief.tammes_restarts, brief.rotation_restarts)
    return STAGES.get(key, lambda: _rotated(brief))


def _rotated(brief: Brief) -> Weights:
    points = sphere.build(brief) * np.sqrt(brief.bits)
    rotation = best_rotation(
        points,
        restarts=brief.rotation_restarts,
        seed=brief.seed,
        threads=brief.threads,
        progress=brief.progress,
    )
    weights: Weights = points @ rotation.matrix
    return weights


@kind("hclm", "the signs of aligned: hash-consistent large margin proxies, eq. (hashH*)", binary=True)
def hclm(brief: Brief) -> Weights:
    """Return the corners of the cube nearest to the aligned points, distinct."""
    return distinct_corners(aligned.build(brief))


@kind("shclm", "hclm, with similar proxies for similar classes, eq. (class_assignment)", binary=True, semantic="hclm")
def shclm(brief: Brief) -> Weights:
    """Return the corners of `hclm`, matched to the classes by their similarity."""
    return _matched(hclm.build(brief), brief)


@kind("code", "corners as far apart as coding theory allows, whatever the classes mean", binary=True)
def code(brief: Brief) -> Weights:
    """Return the code of the largest minimal distance that can be constructed."""
    from proxyhash.proxies.constructions import best_code  # importing it compiles

    return best_code(brief.classes, brief.bits, brief.seed).astype(np.float32)


@kind("scode", "code, with similar proxies for similar classes", binary=True, semantic="code")
def scode(brief: Brief) -> Weights:
    """Return the corners of `code`, matched to the classes by their similarity."""
    return _matched(code.build(brief), brief)


@kind(
    "joint", "corners chosen for a floor under all distances and for class similarity together", binary=True, semantic="code"
)
def joint(brief: Brief) -> Weights:
    """Return corners that keep the floor and otherwise follow the similarity."""
    from proxyhash.proxies.joint import checked_floor, joint_corners  # importing it compiles

    corners = code.build(brief)
    floor = checked_floor(brief.floor, corners, brief.floor_share)
    if brief.similarity is None:
        return corners
    return joint_corners(
        brief.similarity,
        brief.bits,
        floor,
        lambda: _matched(corners, replace(brief, solver="greedy")),
        seed=brief.seed,
        progress=brief.progress,
    )


def _matched(corners: Weights, brief: Brief) -> Weights:
    """Give similar classes similar `corners` (C, d), if it is known which are similar."""
    if brief.similarity is None:
        return corners
    order = assign(
        brief.similarity,
        corners,
        solver=brief.solver,
        seed=brief.seed,
        threads=brief.threads,
        progress=brief.progress,
    )
    return corners[order]
