"""Turn labelled images into short binary codes that retrieve by meaning, and search them."""

from importlib.metadata import version

from proxyhash.proxies import ProxySet, class_mean_similarity, design_proxies, list_kinds, tag_similarity
from proxyhash.support.errors import InputError, ProxyhashWarning

__version__ = version("proxyhash")

__all__ = [
    "InputError",
    "ProxySet",
    "ProxyhashWarning",
    "class_mean_similarity",
    "design_proxies",
    "list_kinds",
    "tag_similarity",
]
