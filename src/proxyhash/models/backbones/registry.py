"""The front door: image networks by name."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch

from proxyhash.models.backbones.base import Backbone
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class Brief:
    """What a builder is told: with which weights to start, and where their file is if not in its usual place."""

    pretrained: bool = True
    weights: Path | None = None


Build = Callable[[Brief], Backbone]

_BACKBONES: dict[str, Build] = {}
_TRAINED_ON: dict[str, str | None] = {}
TIMM_PREFIX = "timm/"


def register_backbone(name: str, trained_on: str | None) -> Callable[[Build], Build]:
    """Register a builder under `name`, with the data that its published weights were trained on if there are any."""

    def register(build: Build) -> Build:
        _BACKBONES[name] = build
        _TRAINED_ON[name] = trained_on
        return build

    return register


def list_backbones() -> list[str]:
    """Return the names of our networks; `timm/NAME` adds any model of timm."""
    return list(_BACKBONES)


def pretraining_data(name: str) -> str | None:
    """Return what a network's published weights were trained on, or None if it has none; nothing is loaded."""
    if not name.startswith(TIMM_PREFIX):
        _find(name)
    return _TRAINED_ON.get(name, "timm's default weights")


def create_backbone(name: str, *, pretrained: bool = True, weights: Path | None = None, seed: int = 0) -> Backbone:
    """Return the network called `name`.

    Pretrained weights come from an installed package or the cache, or from the file `weights` if that is given. Without
    them (`pretrained=False`) the network starts from random weights, the same ones for the same seed.
    """
    if weights is not None and not pretrained:
        raise InputError("Weights were given together with pretrained=False; leave one of the two out.")
    build = _find(name)
    with _own_randomness(seed, name):
        return build(Brief(pretrained, weights))


def _find(name: str) -> Build:
    if name.startswith(TIMM_PREFIX):
        from proxyhash.models.backbones import timm_models

        return timm_models.builder(name.removeprefix(TIMM_PREFIX))
    if name not in _BACKBONES:
        advice = closest(name, _BACKBONES) or f"choose from {', '.join(_BACKBONES)}, or timm/NAME for a model of timm"
        raise InputError(f"There is no backbone {name!r}; {advice}.")
    return _BACKBONES[name]


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the advice to type the known name nearest to `name`, if one is near."""
    matches = get_close_matches(name, known, n=1)
    return f"try {matches[0]!r}" if matches else None


@contextmanager
def _own_randomness(seed: int, name: str) -> Iterator[None]:
    """Let torch's layers draw from the stream of `seed`, and leave the caller's stream where it was."""
    with torch.random.fork_rng(devices=[]):
        # Of the CPU only: torch.manual_seed would also move the streams of GPUs, which are not restored here.
        torch.default_generator.manual_seed(int(generator(seed, "backbone", name).integers(2**63)))
        yield
