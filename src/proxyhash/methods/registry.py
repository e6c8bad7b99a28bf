"""Hashing methods by name."""

import json
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeVar

import torch

from proxyhash.methods.base import Encoder, HashingMethod, MethodSettings, TrainingData
from proxyhash.methods.plugins import load_all_plugins
from proxyhash.utils.config import from_mapping
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import Registry, lookup
from proxyhash.utils.validation import check_int, shorten

LearnsFrom = Literal["nothing", "classes", "classes or tags"]
Fit = Callable[[TrainingData, Any], Encoder]
Registered = TypeVar("Registered", bound="type[HashingMethod] | Fit")


@dataclass(frozen=True)
class MethodInfo:
    """An entry of the registry.

    A method that trains a network has `build`, its class; another one has `fit`, a function of features.
    """

    name: str
    title: str
    family: str
    year: int | None
    settings: type[MethodSettings]
    learns_from: LearnsFrom
    metric: str
    revision: int = 1
    build: Callable[[TrainingData, Any], HashingMethod] | None = None
    fit: Fit | None = None

    @property
    def trains(self) -> bool:
        """Return whether the method trains a network."""
        return self.build is not None

    def option_error(self, option: str) -> InputError:
        """Return the error for an option of training that has no effect on this method, which trains no network."""
        if "lr" in (field.name for field in fields(self.settings)):
            own = f"{self.title} has settings of its own for its training, such as {self.name}:lr=0.001"
            return InputError(f"{own}, so {option} has no effect; leave it out.")
        return InputError(f"{self.title} trains no network, so {option} has no effect; leave it out.")

    def sort_key(self) -> tuple[str, int, str]:
        """Return what methods are listed by; those of one file keep their order."""
        return self.family, self.year or sys.maxsize, (self.build or self.fit).__module__


_METHODS: Registry[MethodInfo] = Registry("method")


def register_method(
    name: str,
    *,
    title: str | None = None,
    family: str = "other",
    year: int | None = None,
    settings: type[MethodSettings] = MethodSettings,
    learns_from: LearnsFrom = "classes or tags",
    metric: str = "hamming",
    revision: int = 1,
) -> Callable[[Registered], Registered]:
    """Return a decorator that registers a method under a name.

    It decorates a subclass of `HashingMethod`, or for a method that trains no network a function from `TrainingData` and
    settings to an `Encoder`.

    Parameters
    ----------
    name
        What is typed: lower case, with hyphens.
    title
        What tables show; by default the name.
    family
        Methods are listed by family, then by year.
    year
        When it was published.
    settings
        A frozen dataclass, a subclass of `MethodSettings`.
    learns_from
        What it needs: "nothing", "classes" or "classes or tags".
    metric
        How its codes are compared, as its head or encoder has it.
    revision
        A number that is raised when the same label stands for another method than before, such as after a changed default.
        Reports mark records of an earlier revision as stale.

    Raises
    ------
    InputError
        If the name is taken, the class is no `HashingMethod`, or the settings are no dataclass.

    Examples
    --------
    >>> @register_method("itq", learns_from="nothing")
    ... def fit(data: TrainingData, settings: MethodSettings) -> Encoder: ...
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: There is already a method 'itq'; choose another name.
    """

    def register(method: Registered) -> Registered:
        if not method.__module__.startswith(__package__):
            _import_methods()  # so that a name that is taken is noticed
        _check_entry(name, method, settings)
        factory: dict[str, Any] = {"build" if isinstance(method, type) else "fit": method}
        _METHODS.add(name, MethodInfo(name, title or name, family, year, settings, learns_from, metric, revision, **factory))
        return method

    return register


def _check_entry(name: str, method: object, settings: type) -> None:
    """Raise an `InputError` for mistakes that would only be noticed later."""
    if isinstance(method, type) and not issubclass(method, HashingMethod):
        raise InputError(f"The method {name!r} must be a subclass of HashingMethod, or a function that fits features.")
    if not issubclass(settings, MethodSettings) or "__dataclass_fields__" not in vars(settings):
        raise InputError(f"The settings of {name!r} must be a frozen dataclass and a subclass of MethodSettings.")


def list_methods(*, trains: bool | None = None) -> list[str]:
    """Return the names of all methods, by family and year.

    Parameters
    ----------
    trains
        Only those that train a network, or only those that do not.

    Returns
    -------
    list of str

    Examples
    --------
    >>> list_methods(trains=False)
    ['lsh', 'itq', 'itq-cca', 'random-rotation', 'ksh', 'sdh', 'bihalf', 'cibhash', 'crovca']
    """
    _discover_methods()
    found = [info for info in _METHODS.values() if trains is None or info.trains == trains]
    return [info.name for info in sorted(found, key=MethodInfo.sort_key)]


@cache
def _import_methods() -> None:
    """Import every module of this package, so that its methods register themselves."""
    package = import_module(__package__)
    for module in sorted(info.name for info in pkgutil.iter_modules(package.__path__)):
        import_module(f"{__package__}.{module}")


def _discover_methods() -> None:
    """Make all methods known: those of this package, of other packages, and of the plugins that the environment names."""
    _import_methods()
    load_all_plugins()


def get_method(name: str) -> MethodInfo:
    """Return the entry of a method.

    Parameters
    ----------
    name
        A name from `list_methods`.

    Returns
    -------
    MethodInfo

    Raises
    ------
    InputError
        For an unknown name, with a suggestion.

    Examples
    --------
    >>> get_method("dpsh").title
    'DPSH'
    """
    _discover_methods()
    return lookup("method", name, dict(sorted(_METHODS.items())))  # the order of registration is that of imports


def check_settings(name: str, settings: Mapping[str, Any]) -> MethodSettings:
    """Return the settings of a method as its dataclass.

    Parameters
    ----------
    name
        A name from `list_methods`.
    settings
        Values by name; others keep their defaults.

    Returns
    -------
    MethodSettings

    Raises
    ------
    InputError
        For an unknown method or setting, with a suggestion, and for a value of the wrong type.

    Examples
    --------
    >>> check_settings("itq", {"iterations": 10})
    ItqSettings(iterations=10)
    >>> check_settings("itq", {"iteration": 10})
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: ITQ has no setting 'iteration'; did you mean iterations?
    """
    info = get_method(name)
    return from_mapping(info.settings, settings, owner=info.title)


def check_data(name: str, data: TrainingData) -> None:
    """Raise an `InputError` unless a method can learn from these data."""
    info = get_method(name)
    check_int("bits", data.bits, 1)
    if info.learns_from != "nothing" and data.labels is None:
        raise InputError(f"{info.title} learns from labels, and there are none.")
    if info.learns_from == "classes" and data.has_tags:
        raise InputError(f"{info.title} learns from classes and cannot use tags.")
    if data.features is not None and not callable(data.features):
        shape = data.features.shape
        if len(shape) != 2 or shape[0] < 2:
            raise InputError(f"Features must be a matrix of at least two images, not {shape}.")
        if data.labels is not None and len(data.labels) != shape[0]:
            raise InputError(f"There are {shape[0]} features and {len(data.labels)} labels.")


def build_method(name: str, data: TrainingData, settings: Mapping[str, Any]) -> HashingMethod:
    """Return a method that trains a network, ready to be trained.

    Its random draws depend on the seed of the data only, and do not move torch's own generator.

    Parameters
    ----------
    name
        A name from `list_methods(trains=True)`.
    data
        The training images.
    settings
        Values by name; others keep their defaults.

    Returns
    -------
    HashingMethod

    Raises
    ------
    InputError
        For an unknown method or setting, and for data that the method cannot learn from.

    Examples
    --------
    >>> from proxyhash.labels import ClassLabels
    >>> data = TrainingData(8, labels=ClassLabels.from_names(["cat", "dog", "dog", "cat"]))
    >>> build_method("dpsh", data, {"samples_per_class": 2}).samples_per_class
    2
    """
    info = get_method(name)
    resolved = check_settings(name, settings)
    if info.build is None:
        trained = list_methods(trains=True)
        raise InputError(f"{info.title} trains no network; choose from {', '.join(trained)}.")
    check_data(name, data)
    resolved = resolved.resolve(tags=data.has_tags, finetune=data.finetune)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(data.seed)
        return info.build(data, resolved)


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of a method as they are typed.

    Values are read as JSON, others as text. A word without a value is a preset of the method, such as the paper's settings;
    settings that are typed too are kept.

    Examples
    --------
    >>> parse_method("shclm:triplet=1:loss=nca")
    ('shclm', {'triplet': 1, 'loss': 'nca'})
    >>> parse_method("shclm:paper:triplet=1")
    ('shclm', {'tau': 'd', 'bias': True, 'assignment': 'greedy', 'triplet': 1})
    """
    if not isinstance(text, str):
        raise InputError(f"A method is given by its name, not by {shorten(text)}.")
    name, *pairs = text.split(":")
    preset: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        presets = {} if equals else get_method(name).settings.PRESETS
        if key in presets:
            preset |= presets[key]
            continue
        if not (key and equals and value):
            known = f"; {name} has the preset {', '.join(presets)}" if presets else ""
            raise InputError(f"A method with settings is typed name:setting=value, not {text}{known}.")
        try:
            settings[key] = json.loads(value)
        except RecursionError:
            raise InputError(f"The setting {key} of {name} is nested too deeply.") from None
        except ValueError:
            settings[key] = value
    return name, {**preset, **settings}
