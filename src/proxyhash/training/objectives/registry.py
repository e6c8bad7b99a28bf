"""Training methods by name."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch

from proxyhash.training.objectives.objective import Objective, Task
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import lookup

Build = Callable[[Task, Any], Objective]


@dataclass(frozen=True)
class Method:
    """A named objective, and the frozen dataclass of its settings."""

    name: str
    summary: str
    settings: type
    build: Build
    takes_tags: bool = True


_METHODS: dict[str, Method] = {}


def objective(name: str, summary: str, settings: type, *, takes_tags: bool = True) -> Callable[[Build], Build]:
    """Register what builds an objective from a task and its settings."""

    def register(build: Build) -> Build:
        _METHODS[name] = Method(name, summary, settings, build, takes_tags)
        return build

    return register


def list_objectives() -> list[str]:
    """Return the names of all methods that train a network."""
    return list(_METHODS)


def find_objective(name: str) -> Method:
    """Return a method by name; an unknown one is answered with what to type."""
    return lookup("training method", name, _METHODS)


def check_settings(name: str, settings: dict[str, Any]) -> Method:
    """Return a method by name; a setting that it does not have is an error."""
    method = find_objective(name)
    known = [field.name for field in fields(method.settings)]
    unknown = sorted(settings.keys() - set(known))
    if unknown:
        raise InputError(f"The method {name} has no setting {unknown[0]}; it has {', '.join(known)}.")
    return method


def build_objective(name: str, task: Task, settings: dict[str, Any]) -> Objective:
    """Return the objective of a method for a task."""
    method = check_settings(name, settings)
    if task.tags is not None and not method.takes_tags:
        raise InputError(f"The method {name} learns from classes, and this data set has tags.")
    with torch.random.fork_rng(devices=[]):  # what it draws depends on the task's seed, and moves nobody else's stream
        torch.default_generator.manual_seed(task.seed)
        return method.build(task, method.settings(**settings))
