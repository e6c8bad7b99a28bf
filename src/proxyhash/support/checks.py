"""Checks of single values, each ending in one clear sentence."""

import operator

from proxyhash.support.errors import InputError


def whole_number(name: str, value: object, at_least: int) -> int:
    """Return `value` as an int; booleans, floats and numbers below `at_least` are errors."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InputError(f"{name} must be a whole number, not {value!r}.")
    number = operator.index(value)
    if number < at_least:
        raise InputError(f"{name} must be at least {at_least}, not {number}.")
    return number
