"""Things by name: an unknown name is answered with what to type."""

import difflib
from collections.abc import Mapping
from typing import TypeVar

from proxyhash.support.errors import InputError

Thing = TypeVar("Thing")


def look_up(what: str, name: str, known: Mapping[str, Thing]) -> Thing:
    """Return what is known by `name`; `what` says in the error what kind of thing was looked for."""
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}."
    raise InputError(f"There is no {what} {name!r}; {hint}")
