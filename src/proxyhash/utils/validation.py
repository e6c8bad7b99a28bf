"""Checks of single values."""

import operator
import reprlib

from proxyhash.utils.errors import InputError

LARGEST_INT = 2**62  # larger numbers do not fit into the integers of numpy and torch


def check_int(name: str, value: object, minimum: int, maximum: int = LARGEST_INT) -> int:
    """Return `value` as an int; booleans, floats, and numbers below `minimum` or above `maximum` are errors."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be a whole number, not {shorten(value)}.")
    number = operator.index(value)
    if number < minimum:
        raise InputError(f"{name} must be at least {minimum}, not {shorten(number)}.")
    if number > maximum:
        raise InputError(f"{name} must be at most {maximum}, not {shorten(number)}.")
    return number


def shorten(value: object) -> str:
    """Return a value as one short line for a message, however large it is.

    >>> shorten("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    >>> shorten(16**5000)
    'a number of 6021 digits'
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"a number of {round(value.bit_length() * 0.30103)} digits"
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 80, 80
