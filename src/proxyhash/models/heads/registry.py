"""Heads by name: what a file says of a head is a name and a few numbers, so that nothing in a file can run code."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from proxyhash.models.heads.base import Head, HeadConfig
from proxyhash.utils.registry import lookup

Kind = TypeVar("Kind", bound=type[Head])

DEFAULT_HEAD = "tanh"  # the paper's head, which files name by saying nothing

_HEADS: dict[str, type[Head]] = {}


def register_head(name: str) -> Callable[[Kind], Kind]:
    """Register a kind of head."""

    def register(kind: Kind) -> Kind:
        _HEADS[name] = kind
        return kind

    return register


def create_head(facts: object) -> Head:
    """Return the head that `describe_head` has described, its weights still to be loaded."""
    if not isinstance(facts, dict):
        raise TypeError(f"a head is described by its kind and its shape, not by {facts!r}")  # whose file it was, others know
    numbers = dict(facts)
    return lookup("head", numbers.pop("kind", DEFAULT_HEAD), _HEADS)(HeadConfig(**numbers))


def describe_head(head: Head) -> dict[str, Any]:
    """Return a head's kind and shape for a file; the paper's head is described as it was before there were others."""
    kind = next(name for name, known in _HEADS.items() if known is type(head))
    facts = asdict(head.config)
    if not head.config.out_features:
        del facts["outputs"]
    return facts if kind == DEFAULT_HEAD else {"kind": kind, **facts}
