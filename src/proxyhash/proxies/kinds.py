"""Kinds of proxy sets, each composed of the design steps in this package."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from proxyhash.proxies.alignment import best_rotation
from proxyhash.proxies.assignment import assign
from proxyhash.proxies.binary import distinct_corners
from proxyhash.proxies.geometry import Floats, unit_rows
from proxyhash.proxies.tammes import tammes
from proxyhash.utils.cache import ArrayCache
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.random import generator
from proxyhash.utils.registry import Registry

Weights = Floats

DISTANCE_SHARE = 0.5
"""Default minimal distance of `joint`, as a share of the distance of `code`.

0.75 and 0.9 gained less mAP on seen classes than they lost on unseen ones, see docs/results.md.
"""

STAGE_CACHE = ArrayCache(16)  # packings and rotations, which the kinds tammes, aligned, hclm and shclm of one seed share


@dataclass(frozen=True)
class DesignConfig:
    """Arguments of a design: C classes, d bits, the class similarity (C, C) if known, and search effort."""

    classes: int
    bits: int
    seed: int = 0
    similarity: Floats | None = None
    tammes_restarts: int | None = None  # None: by the number of classes, see `tammes.default_restarts`
    rotation_restarts: int = 20  # ITQ depends on its start
    solver: str = "anneal"
    min_distance: int | None = None  # None: `distance_share` of the minimal distance of `code`
    distance_share: float = DISTANCE_SHARE
    threads: int | None = None  # None: all cores
    progress: Progress = field(default=no_progress, repr=False)


@dataclass(frozen=True)
class ProxyKind:
    """A named function from a `DesignConfig` to directions (C, d)."""

    name: str
    summary: str
    build: Callable[[DesignConfig], Weights]
    binary: bool = False  # entries are +1 and -1
    without_similarity: str | None = None  # of a kind that uses the class similarity: the kind that it equals without one

    @property
    def uses_similarity(self) -> bool:
        """Return whether the proxies depend on the class similarity."""
        return self.without_similarity is not None


_KINDS: Registry[ProxyKind] = Registry("proxy kind")


def register_kind(
    name: str, summary: str, *, binary: bool = False, without_similarity: str | None = None
) -> Callable[[Callable[[DesignConfig], Weights]], ProxyKind]:
    """Return a decorator that registers a design function as a kind."""

    def register(build: Callable[[DesignConfig], Weights]) -> ProxyKind:
        kind = ProxyKind(name, summary, build, binary, without_similarity)
        _KINDS.add(name, kind)
        return kind

    return register


def list_kinds() -> list[str]:
    """Return the names of all kinds of proxy sets.

    Returns
    -------
    list of str
        In the order of the paper, then the kinds made of codes.

    Examples
    --------
    >>> "shclm" in list_kinds()
    True
    """
    return list(_KINDS)


def get_kind(name: str) -> ProxyKind:
    """Return a kind by name; an unknown name raises an `InputError` with a suggestion."""
    return _KINDS.find(name)


def _gaussian_directions(config: DesignConfig, purpose: str) -> Weights:
    shape = (config.classes, config.bits)
    return unit_rows(generator(config.seed, purpose).standard_normal(shape))


@register_kind("learned", "random directions, trained with the network as in an ordinary classifier")
def learned(config: DesignConfig) -> Weights:
    """Return the initial values of trainable proxies."""
    return _gaussian_directions(config, "learned")


@register_kind("random", "random directions, fixed")
def random(config: DesignConfig) -> Weights:
    """Return normalized Gaussian vectors."""
    return _gaussian_directions(config, "random")


@register_kind("tammes", "well-separated points on the sphere in a random rotation, eq. (tammes)")
def sphere(config: DesignConfig) -> Weights:
    """Return the best packing of several random starts."""
    key = ("tammes", config.classes, config.bits, config.seed, config.tammes_restarts)
    return STAGE_CACHE.get(
        key,
        lambda: tammes(
            config.classes,
            config.bits,
            restarts=config.tammes_restarts,
            seed=config.seed,
            threads=config.threads,
            progress=config.progress,
        ),
    )


@register_kind("aligned", "tammes, rotated towards the corners of the cube, eq. (G*)")
def aligned(config: DesignConfig) -> Weights:
    """Return the packing in the rotation of least quantization error."""
    key = ("aligned", config.classes, config.bits, config.seed, config.tammes_restarts, config.rotation_restarts)
    return STAGE_CACHE.get(key, lambda: _align(config))


def _align(config: DesignConfig) -> Weights:
    points = sphere.build(config) * np.sqrt(config.bits)
    rotation = best_rotation(
        points,
        restarts=config.rotation_restarts,
        seed=config.seed,
        threads=config.threads,
        progress=config.progress,
    )
    weights: Weights = points @ rotation.matrix
    return weights


@register_kind("hclm", "the signs of aligned: hash-consistent large margin proxies, eq. (hashH*)", binary=True)
def hclm(config: DesignConfig) -> Weights:
    """Return the distinct corners of the cube that are nearest to the aligned points."""
    return distinct_corners(aligned.build(config))


@register_kind(
    "shclm",
    "hclm, with similar proxies for similar classes, eq. (class_assignment)",
    binary=True,
    without_similarity="hclm",
)
def shclm(config: DesignConfig) -> Weights:
    """Return the corners of `hclm`, assigned to the classes by their similarity."""
    return _match_to_classes(hclm.build(config), config)


@register_kind("code", "corners of the largest minimal distance that can be constructed", binary=True)
def code(config: DesignConfig) -> Weights:
    """Return the code of the largest minimal distance that can be constructed."""
    from proxyhash.proxies.constructions import best_code  # imports numba

    return best_code(config.classes, config.bits, config.seed).astype(np.float32)


@register_kind("scode", "code, with similar proxies for similar classes", binary=True, without_similarity="code")
def scode(config: DesignConfig) -> Weights:
    """Return the corners of `code`, assigned to the classes by their similarity."""
    return _match_to_classes(code.build(config), config)


@register_kind(
    "joint",
    "corners optimized for class similarity under a minimal distance",
    binary=True,
    without_similarity="code",
)
def joint(config: DesignConfig) -> Weights:
    """Return corners that keep a minimal distance and otherwise follow the similarity."""
    from proxyhash.proxies.joint import joint_corners, resolve_min_distance  # imports numba

    corners = code.build(config)
    min_distance = resolve_min_distance(config.min_distance, corners, config.distance_share)
    if config.similarity is None:
        return corners
    return joint_corners(
        config.similarity,
        config.bits,
        min_distance,
        lambda: _match_to_classes(corners, replace(config, solver="greedy")),
        seed=config.seed,
        progress=config.progress,
    )


def _match_to_classes(corners: Weights, config: DesignConfig) -> Weights:
    """Assign `corners` (C, d) to the classes by their similarity, if it is known."""
    if config.similarity is None:
        return corners
    order = assign(
        config.similarity,
        corners,
        solver=config.solver,
        seed=config.seed,
        threads=config.threads,
        progress=config.progress,
    )
    return corners[order]
