"""Methods from Python files of users and from other packages."""

import hashlib
import os
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.registry import Registry

PLUGINS_VARIABLE = "PROXYHASH_PLUGINS"
"""The environment variable with paths of plugins, separated as in PATH."""
ENTRY_POINT_GROUP = "proxyhash.methods"
"""The group of entry points whose modules are imported."""


def use_plugins(paths: Iterable[Path]) -> None:
    """Load plugins now, and in the processes that are started from here.

    Parameters
    ----------
    paths
        Python files that register methods when they run.

    Raises
    ------
    InputError
        If there is no such file, it fails, it registers nothing, or a name that it registers is taken.

    Examples
    --------
    >>> use_plugins([Path("my_method.py")])
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: There is no plugin my_method.py.
    """
    for path in paths:
        load_plugin(path)
        known = _plugins_of_environment()
        if path.resolve() not in known:
            os.environ[PLUGINS_VARIABLE] = os.pathsep.join(map(str, [*known, path.resolve()]))


def load_plugin(path: Path) -> None:
    """Run a Python file that registers methods, once in a process."""
    name = _module_name(path)
    if name in sys.modules:
        return
    spec = spec_from_file_location(name, path)
    if not path.is_file():
        raise InputError(f"There is no plugin {path}.")
    if spec is None or spec.loader is None:
        raise InputError(f"The plugin {path} is not a Python file.")
    before = Registry.total
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError as error:
        del sys.modules[name]
        raise InputError(f"The plugin {path} cannot be used: {error}") from error
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"The plugin {path} cannot be imported: {type(error).__name__}: {error}.") from error
    if Registry.total == before:
        raise InputError(f"The plugin {path} registers nothing; decorate a class or a function with @register_method.")


def load_all_plugins() -> None:
    """Load the plugins of other packages, and those that the environment names.

    A package that fails is skipped with a warning: it may be installed for another purpose.
    """
    _load_entry_points()
    for path in _plugins_of_environment():
        load_plugin(path)


@cache
def _load_entry_points() -> None:
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            point.load()
        except Exception as error:
            sentence = f"The entry point {point.name} of {ENTRY_POINT_GROUP} cannot be loaded"
            warnings.warn(f"{sentence}: {type(error).__name__}: {error}.", ProxyhashWarning, stacklevel=2)


def _plugins_of_environment() -> list[Path]:
    return [Path(path) for path in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if path]


def _module_name(path: Path) -> str:
    """Return a name that differs for files of the same name in different folders."""
    digits = hashlib.blake2b(str(path.resolve()).encode(), digest_size=4).hexdigest()
    return f"proxyhash_plugin_{path.stem}_{digits}"
