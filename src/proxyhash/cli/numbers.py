"""Whole numbers on the command line."""

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token

from proxyhash.utils.errors import InputError


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """Read a whole number; the command line library would round 2.5 to 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise InputError(f"it must be a whole number, not {tokens[0].value}.") from None


Whole = Annotated[int, Parameter(converter=_whole)]
