"""Training of hashers. Names are imported lazily, so torch loads only when it is needed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxyhash.training.config import OptimConfig, TrainConfig
    from proxyhash.training.features import fit_method
    from proxyhash.training.run import train_models
    from proxyhash.training.train import train_hashers

__all__ = ["OptimConfig", "TrainConfig", "fit_method", "train_hashers", "train_models"]

_MODULES = {
    "OptimConfig": "config",
    "TrainConfig": "config",
    "fit_method": "features",
    "train_hashers": "train",
    "train_models": "run",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted([*globals(), *__all__])
