"""Every system of the comparison under one roof: by name, with its family, year, labels, and how it searches."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from proxyhash.methods.deep.fitting import fit_head
from proxyhash.methods.lesson import Encoder, Lesson
from proxyhash.training.config import OptimConfig
from proxyhash.training.objectives import Objective, Task, find_objective, objective
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import lookup
from proxyhash.utils.validation import check_int

LearnsFrom = Literal["nothing", "classes", "classes or tags"]


@dataclass(frozen=True)
class Method:
    """A system: what it is called, where it belongs, and what fits it."""

    name: str
    title: str
    family: str
    year: int
    settings: type
    learns_from: LearnsFrom
    searches: str
    fit: Callable[..., Encoder]  # lesson, settings, and a plan if it trains a network
    trains: bool = False


_METHODS: dict[str, Method] = {}


def method(
    name: str,
    title: str,
    family: str,
    year: int,
    settings: type,
    *,
    learns_from: LearnsFrom,
    searches: str = "Hamming",
) -> Callable[[Callable[[Lesson, Any], Encoder]], Callable[[Lesson, Any], Encoder]]:
    """Register what fits a shallow method."""

    def register(fit: Callable[[Lesson, Any], Encoder]) -> Callable[[Lesson, Any], Encoder]:
        _METHODS[name] = Method(name, title, family, year, settings, learns_from, searches, fit)
        return fit

    return register


def deep_method(
    name: str,
    title: str,
    family: str,
    year: int,
    settings: type,
    *,
    takes_tags: bool = True,
    searches: str = "Hamming",
) -> Callable[[Callable[[Task, Any], Objective]], Callable[[Task, Any], Objective]]:
    """Register a training objective: it trains networks by its name, and here a head on given features."""

    def register(build: Callable[[Task, Any], Objective]) -> Callable[[Task, Any], Objective]:
        objective(name, title, settings, takes_tags=takes_tags)(build)
        list_as_method(name, title, family, year, searches)
        return build

    return register


def list_as_method(name: str, title: str, family: str, year: int, searches: str = "Hamming") -> None:
    """List a training objective among the systems."""
    found = find_objective(name)
    learns_from: LearnsFrom = "classes or tags" if found.takes_tags else "classes"
    _METHODS[name] = Method(
        name, title, family, year, found.settings, learns_from, searches, partial(fit_head, name), trains=True
    )


def list_methods() -> list[str]:
    """Return the names of all systems."""
    return list(_METHODS)


def find_method(name: str) -> Method:
    """Return a system by name; an unknown one is answered with what to type."""
    return lookup("method", name, _METHODS)


def fit_method(name: str, lesson: Lesson, optim: OptimConfig | None = None, **settings: Any) -> Encoder:
    """Fit a system on features; a setting that it does not have is an error. `plan` is how the deep ones are trained."""
    found = find_method(name)
    known = [setting.name for setting in fields(found.settings)]
    for setting in settings:
        if setting not in known:
            raise InputError(f"{found.title} has no setting {setting}; it has {', '.join(known) or 'none'}.")
    _check(found, lesson)
    chosen = found.settings(**settings)
    return found.fit(lesson, chosen) if optim is None or not found.trains else found.fit(lesson, chosen, optim)


def _check(found: Method, lesson: Lesson) -> None:
    check_int("bits", lesson.bits, 1)
    features = lesson.features
    if features.ndim != 2 or len(features) < 2:
        raise InputError(f"Features must be a matrix of at least two images, not {features.shape}.")
    if found.learns_from != "nothing" and lesson.labels is None and lesson.tags is None:
        raise InputError(f"{found.title} learns from labels, and there are none.")
    if found.learns_from == "classes" and lesson.labels is None:
        raise InputError(f"{found.title} learns from classes and cannot use tags.")
    for known in (lesson.labels, lesson.tags):
        if known is not None and len(known) != len(features):
            raise InputError(f"There are {len(features)} features and {len(known)} labels.")
