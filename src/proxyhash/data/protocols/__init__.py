"""Named, versioned protocols that split a data set into training, validation, queries and database."""

from proxyhash.data.protocols import general, published  # noqa: F401  they register their protocols
from proxyhash.data.protocols.registry import (
    HoldOut,
    Protocol,
    SplitOptions,
    default_protocol,
    get_protocol,
    list_protocols,
    make_split,
    register_protocol,
)
from proxyhash.data.protocols.split import Split, SplitIndices

__all__ = [
    "HoldOut",
    "Protocol",
    "Split",
    "SplitIndices",
    "SplitOptions",
    "default_protocol",
    "get_protocol",
    "list_protocols",
    "make_split",
    "register_protocol",
]
