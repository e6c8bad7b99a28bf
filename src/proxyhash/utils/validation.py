"""Checks of single values."""

import operator

from proxyhash.utils.errors import InputError


def check_int(name: str, value: object, minimum: int) -> int:
    """Return `value` as an int; booleans, floats and numbers below `minimum` are errors."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be a whole number, not {value!r}.")
    number = operator.index(value)
    if number < minimum:
        raise InputError(f"{name} must be at least {minimum}, not {number}.")
    return number
