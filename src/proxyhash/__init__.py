"""Deep hashing in PyTorch: train binary codes for image retrieval, evaluate them exactly, search them by Hamming distance.

Names are imported lazily, so torch loads only when it is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from proxyhash.utils.errors import InputError, ProxyhashWarning

if TYPE_CHECKING:
    from proxyhash import losses
    from proxyhash.evaluation.api import evaluate
    from proxyhash.index import Index
    from proxyhash.models.backbones import wrap_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.heads import HashHead
    from proxyhash.models.vector_hasher import VectorHasher
    from proxyhash.proxies import ProxySet, class_mean_similarity, design_proxies, list_kinds, tag_similarity
    from proxyhash.training.api import train
    from proxyhash.training.batch_sampler import ClassBalancedBatchSampler
    from proxyhash.training.estimator import HashEncoder
    from proxyhash.training.vectors import fit_vectors

    __version__: str

__all__ = [
    "ClassBalancedBatchSampler",
    "HashEncoder",
    "HashHead",
    "Hasher",
    "Index",
    "InputError",
    "ProxySet",
    "ProxyhashWarning",
    "VectorHasher",
    "class_mean_similarity",
    "design_proxies",
    "evaluate",
    "fit_vectors",
    "list_kinds",
    "losses",
    "tag_similarity",
    "train",
    "wrap_backbone",
]

_MODULES = {  # the others are in proxyhash.proxies
    "ClassBalancedBatchSampler": "proxyhash.training.batch_sampler",
    "HashEncoder": "proxyhash.training.estimator",
    "HashHead": "proxyhash.models.heads",
    "Hasher": "proxyhash.models.hasher",
    "Index": "proxyhash.index",
    "VectorHasher": "proxyhash.models.vector_hasher",
    "evaluate": "proxyhash.evaluation.api",
    "fit_vectors": "proxyhash.training.vectors",
    "train": "proxyhash.training.api",
    "wrap_backbone": "proxyhash.models.backbones",
}


def __getattr__(name: str) -> Any:
    """Import a public name."""
    if name == "__version__":
        from importlib.metadata import version

        return version("proxyhash")
    if name == "losses":
        return import_module("proxyhash.losses")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "proxyhash.proxies")), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted([*globals(), *__all__, "__version__"])
