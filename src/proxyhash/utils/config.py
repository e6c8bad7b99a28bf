"""Conversion of mappings, such as TOML tables, to configuration dataclasses."""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import suggest
from proxyhash.utils.validation import shorten

Config = TypeVar("Config")


def check_keys(owner: str, given: Mapping[str, Any], known: list[str]) -> None:
    """Raise an `InputError` with a suggestion for the first key that is not known.

    >>> check_keys("TrainConfig", {"batchsize": 4}, ["batch_size", "lr"])
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: TrainConfig has no setting 'batchsize'; did you mean batch_size?
    """
    for name in given:
        if name not in known:
            raise InputError(f"{owner} has no setting {name!r}; {suggest(str(name), known)}")


def from_mapping(config: type[Config], given: Mapping[str, Any], *, owner: str | None = None) -> Config:
    """Return a dataclass built from a mapping of its fields.

    Parameters
    ----------
    config
        A dataclass. Fields that are not given keep their defaults; nested dataclasses are converted too.
    given
        Values by field name, as TOML or JSON has them.
    owner
        The name in error messages; by default that of the class.

    Returns
    -------
    Config
        The dataclass.

    Raises
    ------
    InputError
        For an unknown key, with a suggestion, and for a value of the wrong type.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Optim:
    ...     lr: float = 0.1
    >>> from_mapping(Optim, {"lr": 0.5})
    Optim(lr=0.5)
    >>> from_mapping(Optim, {"lr": "fast"})
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: Optim: Expected `float`, got `str` - at `$.lr`.
    """
    name = owner or config.__name__
    check_table(name, given)
    check_keys(name, given, [field.name for field in fields(config) if field.init])  # type: ignore[arg-type]
    try:
        return msgspec.convert(dict(given), config)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):  # raised by __post_init__
            raise error.__cause__ from None
        raise InputError(f"{name}: {_explain(str(error), config)}") from error
    except (RecursionError, OverflowError) as error:
        raise InputError(f"{name} holds a value that is nested too deeply, or a number that is too large.") from error


def check_table(name: str, given: object) -> None:
    """Raise an `InputError` unless a value is a mapping.

    >>> check_table("settings", 3)
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: settings must be a table, not 3.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{name} must be a table, not {shorten(given)}.")


def read_toml(path: Path, upgrade: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the content of a TOML file; `upgrade` changes its text first."""
    try:
        return tomllib.loads(upgrade(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except RecursionError as error:
        raise InputError(f"{path} is not a TOML file: it is nested too deeply.") from error
    except ValueError as error:  # also of bytes that are not UTF-8, and of integers with too many digits
        raise InputError(f"{path} is not a TOML file: {' '.join(str(error).split())[:200]}.") from error


def _explain(message: str, config: type) -> str:
    """Return the sentence of a validation error; for a value that is none of a field's choices, with the choices."""
    invalid = re.fullmatch(r"Invalid enum value (.+) - at `\$\.(\w+)`", message)
    if invalid is None:
        return f"{message.rstrip('.')}."
    choices = ", ".join(_choices(get_type_hints(config)[invalid[2]]))
    return f"{invalid[2]} is one of {choices}, not {invalid[1]}."


def _choices(hint: Any) -> list[str]:
    """Return the values of a `Literal`, or of a union of one with numbers, in words."""
    words = []
    for part in get_args(hint):
        if get_args(part):
            words += _choices(part)
        elif part is not NoneType:
            words.append("a number" if isinstance(part, type) else str(part))
    return words
