"""Every system of the comparison under one roof: by name, with its family, year, labels, and how it searches."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from proxyhash.support.checks import whole_number
from proxyhash.support.errors import InputError
from proxyhash.support.progress import Progress, silent

LearnsFrom = Literal["nothing", "classes", "classes or tags"]


@dataclass(frozen=True)
class Lesson:
    """What a shallow method learns from: features (N, width), and classes (N,) or tags (N, T) if there are any."""

    bits: int
    features: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    tags: NDArray[np.bool_] | None = None
    seed: int = 0
    progress: Progress = field(default=silent, repr=False)

    def indicator(self) -> NDArray[np.float64]:
        """Return which image has which class or tag, (N, C) of 0 and 1."""
        if self.labels is not None:
            return np.eye(int(self.labels.max()) + 1)[self.labels]
        assert self.tags is not None  # `fit_method` has checked
        return self.tags.astype(np.float64)


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
    fit: Callable[[Lesson, Any], Any]


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
) -> Callable[[Callable[[Lesson, Any], Any]], Callable[[Lesson, Any], Any]]:
    """Register what fits a shallow method."""

    def register(fit: Callable[[Lesson, Any], Any]) -> Callable[[Lesson, Any], Any]:
        _METHODS[name] = Method(name, title, family, year, settings, learns_from, searches, fit)
        return fit

    return register


def list_methods() -> list[str]:
    """Return the names of all systems."""
    return list(_METHODS)


def find_method(name: str) -> Method:
    """Return a system by name; an unknown one is answered with what to type."""
    if name not in _METHODS:
        close = difflib.get_close_matches(name, _METHODS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(_METHODS)}."
        raise InputError(f"There is no method {name!r}; {hint}")
    return _METHODS[name]


def fit_method(name: str, lesson: Lesson, **settings: Any) -> Any:
    """Fit a shallow method; a setting that it does not have is an error."""
    found = find_method(name)
    known = [setting.name for setting in fields(found.settings)]
    for setting in settings:
        if setting not in known:
            raise InputError(f"{found.title} has no setting {setting}; it has {', '.join(known) or 'none'}.")
    _check(found, lesson)
    return found.fit(lesson, found.settings(**settings))


def _check(found: Method, lesson: Lesson) -> None:
    whole_number("bits", lesson.bits, 1)
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
