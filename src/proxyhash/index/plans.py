"""Exact plans of a search: their names, and the memory that they take."""

from typing import Literal, get_args

from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.utils.errors import InputError

Plan = Literal["scan", "clusters", "mih"]
PLANS: tuple[Plan, ...] = get_args(Plan)


def check_plan(plan: str | None) -> Plan | None:
    """Return a plan that exists; an InputError for any other.

    Examples
    --------
    >>> check_plan("mih")
    'mih'
    """
    if plan is not None and plan not in PLANS:
        raise InputError(f"There is no plan {plan!r}; choose from {', '.join(PLANS)}, or leave it out.")
    return plan


def plan_memory(count: int, bits: int, *, has_clusters: bool) -> dict[str, int]:
    """Return about how many bytes `count` codes take in memory by each plan that is possible.

    Tables of multi-index hashing come on top of the codes. A scan of clustered codes copies them.

    Examples
    --------
    >>> plan_memory(10_000_000, 64, has_clusters=False)
    {'scan': 110000000, 'mih': 543554444}
    """
    codes = count * (8 * -(-bits // 64) + (3 if count <= 2**24 else 4))
    memory = {"scan": (1 + has_clusters) * codes}
    if has_clusters:
        memory["clusters"] = codes
    return memory | {"mih": codes + choose_substrings(bits, count).memory(count, bits)}
