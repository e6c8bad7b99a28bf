"""What a command says: answers to standard output, in words or as JSON; everything else only if nobody asked for quiet."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

Json = Annotated[bool, Parameter(name="--json", negative=())]
Flag = Parameter(negative=())

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)


@contextmanager
def keeping_quiet(quiet: bool = True) -> Iterator[None]:
    """Silence bars, notes and whatever else is told beside the answer, here and in all that is called."""
    token = _QUIET.set(quiet or _QUIET.get())
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return whether only answers and errors are wanted."""
    return _QUIET.get()


def narrator(*, stderr: bool = False, heard: bool = True) -> Console:
    """Return where a command tells what it does, one line a sentence however long; nobody hears it who asked for quiet."""
    return Console(stderr=stderr, highlight=False, soft_wrap=True, quiet=is_quiet() or not heard)


def answer(facts: Mapping[str, Any], *sentences: str, as_json: bool) -> None:
    """Give what a command did: as JSON for machines, or in words for people."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    console = narrator()
    for sentence in sentences:
        console.print(sentence, markup=False)
