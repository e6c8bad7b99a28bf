"""Named, versioned protocols that split a data set into training, validation, queries and database."""

from proxyhash.data.protocols import general, published  # noqa: F401  they register their protocols
from proxyhash.data.protocols.registry import (
    HoldOut,
    Protocol,
    default_protocol,
    get_protocol,
    list_protocols,
    make_split,
)
from proxyhash.data.protocols.split import Split

__all__ = ["HoldOut", "Protocol", "Split", "default_protocol", "get_protocol", "list_protocols", "make_split"]
