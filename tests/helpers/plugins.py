"""Registries and plugins of tests."""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxyhash.methods import list_methods, registry
from proxyhash.methods.plugins import PLUGINS_VARIABLE

PLUGIN = Path(__file__).parents[1] / "methods" / "sample_plugin.py"
"""A file that registers `spread`, a method that trains a network, and `first-features`, one that does not."""


@contextmanager
def own_registry() -> Iterator[pytest.MonkeyPatch]:
    """Forget, at the end, the methods and plugins that are registered within."""
    list_methods()  # so that all built-in methods are known
    modules = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_METHODS", copy.deepcopy(registry._METHODS))
        patch.setenv(PLUGINS_VARIABLE, "")
        yield patch
    for name in [name for name in sys.modules if name.startswith("proxyhash_plugin_") and name not in modules]:
        del sys.modules[name]
