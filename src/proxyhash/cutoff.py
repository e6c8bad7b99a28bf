"""Cutoff and denominator of average precision."""

from typing import Literal, get_args

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

Denominator = Literal["relevant", "capped", "retrieved"]
"""Divisor of the sum of precisions at the hits: all R relevant items, min(R, top), or those among the `top` nearest."""

DENOMINATORS: tuple[Denominator, ...] = get_args(Denominator)


def check_denominator(denominator: object) -> Denominator:
    """Return `denominator`, or raise an `InputError` that lists the known ones.

    >>> check_denominator("capped")
    'capped'
    """
    if denominator not in DENOMINATORS:
        raise InputError(f"There is no denominator {denominator!r}; choose from {', '.join(DENOMINATORS)}.")
    return denominator


def check_cutoff(top: object, denominator: object) -> None:
    """Raise an `InputError` unless `top` is None or at least 1, and `denominator` is known and has a cutoff if it needs one.

    Without a cutoff all relevant items are retrieved, so the three denominators are one.

    >>> check_cutoff(None, "capped")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: The denominator capped needs a cutoff: give top too, such as 5000.
    """
    if top is not None:
        check_int("top", top, minimum=1)
    if check_denominator(denominator) != "relevant" and top is None:
        raise InputError(f"The denominator {denominator} needs a cutoff: give top too, such as 5000.")


def map_name(top: int | None, denominator: str = "relevant") -> str:
    """Return the name of mean average precision with its cutoff and denominator.

    >>> map_name(5000, "retrieved")
    'mAP@5000[retrieved]'
    >>> map_name(None)
    'mAP'
    """
    return "mAP" if top is None else f"mAP@{top}[{denominator}]"
