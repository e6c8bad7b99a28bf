"""Hashing methods: one file each, one registry.

Names are imported lazily, so torch loads only when it is needed. Method files register themselves when the registry is
first used; a new file needs no import here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxyhash.methods.base import Encoder, HashingMethod, MethodSettings, TrainingData
    from proxyhash.methods.encoders import HeadEncoder, LinearEncoder
    from proxyhash.methods.plugins import use_plugins
    from proxyhash.methods.registry import (
        MethodInfo,
        build_method,
        check_settings,
        get_method,
        list_methods,
        parse_method,
        register_method,
    )

__all__ = [
    "Encoder",
    "HashingMethod",
    "HeadEncoder",
    "LinearEncoder",
    "MethodInfo",
    "MethodSettings",
    "TrainingData",
    "build_method",
    "check_settings",
    "get_method",
    "list_methods",
    "parse_method",
    "register_method",
    "use_plugins",
]

_MODULES = {
    "base": ("Encoder", "HashingMethod", "MethodSettings", "TrainingData"),
    "encoders": ("HeadEncoder", "LinearEncoder"),
    "plugins": ("use_plugins",),
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names), "registry")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted([*globals(), *__all__])
