"""Turn labelled images into short binary codes that retrieve by meaning, and search them."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from proxyhash.proxies import ProxySet, class_mean_similarity, design_proxies, list_kinds, tag_similarity
from proxyhash.support.errors import InputError, ProxyhashWarning

if TYPE_CHECKING:
    from proxyhash.index import Index

__version__ = version("proxyhash")

__all__ = [
    "Index",
    "InputError",
    "ProxySet",
    "ProxyhashWarning",
    "class_mean_similarity",
    "design_proxies",
    "list_kinds",
    "tag_similarity",
]


def __getattr__(name: str) -> Any:
    """Import the index only when it is asked for: whoever designs proxies need not wait for it."""
    if name == "Index":
        from proxyhash.index import Index

        return Index
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
