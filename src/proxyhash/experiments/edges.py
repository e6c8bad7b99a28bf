"""Settings that tuning chose at an edge of what it tried."""

from collections.abc import Collection
from dataclasses import MISSING, dataclass, fields
from typing import Any

from proxyhash.methods import get_method, parse_method


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a row such as `shclm:tau=4.0`, and the optimizer settings that go with it."""

    label: str
    optim: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Return it as the comments of a file have it: `shclm:tau=4.0, lr 0.005`."""
        return ", ".join([self.label, *(f"{name} {value:g}" for name, value in self.optim)])


def at_edge(chosen: Candidate, tried: Collection[Candidate]) -> dict[str, str]:
    """Return the settings of a candidate whose value is the lowest or the highest that was tried, so a better one may follow.

    Only numbers have an order, two values have no inside, and nothing lies below zero.

    Parameters
    ----------
    chosen
        The best candidate.
    tried
        All candidates of its row.

    Returns
    -------
    dict[str, str]
        "lowest" or "highest", by the name of a setting or of an optimizer setting.

    Examples
    --------
    >>> tried = [Candidate("shclm:tau=4", (("lr", lr),)) for lr in (0.005, 0.015, 0.03)]
    >>> at_edge(tried[2], tried), at_edge(tried[1], tried)
    ({'lr': 'highest'}, {})
    """
    every = [_values(candidate) for candidate in tried]
    own, found = _values(chosen), {}
    for name in dict.fromkeys(name for values in every for name in values):
        values = {value for each in every if _is_number(value := each.get(name, _default(chosen.label, name)))}
        value = own.get(name, _default(chosen.label, name))
        if _is_number(value) and len(values) > 2 and value in (min(values), max(values)) and value != 0:
            found[name] = "lowest" if value == min(values) else "highest"
    return found


def parse_candidate(text: str) -> Candidate:
    """Return the candidate of a text such as `shclm:tau=4.0, lr 0.005`."""
    label, *optim = text.split(", ")
    return Candidate(label, tuple((name, float(value)) for name, _, value in (each.partition(" ") for each in optim)))


def _values(candidate: Candidate) -> dict[str, Any]:
    return {**parse_method(candidate.label)[1], **dict(candidate.optim)}


def _default(label: str, name: str) -> Any:
    """Return the default of a setting of a method; None without one."""
    settings = get_method(parse_method(label)[0]).settings
    defaults = {field.name: field.default for field in fields(settings)}
    return None if (found := defaults.get(name)) is MISSING else found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
