"""Settings that tuning chose at an edge of what it tried."""

from collections.abc import Mapping
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


def at_edge(scores: Mapping[Candidate, float]) -> dict[str, str]:
    """Return the settings of the best candidate whose value is the lowest or the highest that was tried.

    A better value may lie beyond it. Only numbers have an order, two values have no inside, nothing lies below zero, and a
    setting that changes no score has no effect.

    Parameters
    ----------
    scores
        The mAP of all candidates of a row.

    Returns
    -------
    dict[str, str]
        "lowest" or "highest", by the name of a setting or of an optimizer setting.

    Examples
    --------
    >>> slow, middle, fast = (Candidate("shclm:tau=4", (("lr", lr),)) for lr in (0.005, 0.015, 0.03))
    >>> at_edge({slow: 0.5, middle: 0.6, fast: 0.7}), at_edge({slow: 0.5, middle: 0.7, fast: 0.6})
    ({'lr': 'highest'}, {})
    """
    names = dict.fromkeys(name for candidate in scores for name in _values(candidate))
    table = {candidate: {name: _value(candidate, name) for name in names} for candidate in scores}
    chosen, found = table[best_candidate(scores)], {}
    for name in names:
        value, tried = chosen[name], {each[name] for each in table.values() if _is_number(each[name])}
        has_inside = _is_number(value) and value != 0 and len(tried) > 2
        if has_inside and value in (min(tried), max(tried)) and _has_effect(name, table, scores):
            found[name] = "lowest" if value == min(tried) else "highest"
    return found


def best_candidate(scores: Mapping[Candidate, float]) -> Candidate:
    """Return the first candidate with the highest score."""
    return max(scores, key=lambda candidate: scores[candidate])


def _has_effect(name: str, table: Mapping[Candidate, Mapping[str, Any]], scores: Mapping[Candidate, float]) -> bool:
    """Return whether candidates that differ in one setting only have different scores."""
    groups: dict[str, set[float]] = {}
    for candidate, values in table.items():
        groups.setdefault(repr({**values, name: None}), set()).add(scores[candidate])
    return any(len(found) > 1 for found in groups.values())


def parse_candidate(text: str) -> Candidate:
    """Return the candidate of a text such as `shclm:tau=4.0, lr 0.005`."""
    label, *optim = text.split(", ")
    return Candidate(label, tuple((name, float(value)) for name, _, value in (each.partition(" ") for each in optim)))


def _values(candidate: Candidate) -> dict[str, Any]:
    return {**parse_method(candidate.label)[1], **dict(candidate.optim)}


def _value(candidate: Candidate, name: str) -> Any:
    """Return a setting of a candidate, by default that of its method; None without one."""
    settings = get_method(parse_method(candidate.label)[0]).settings
    defaults = {field.name: field.default for field in fields(settings) if field.default is not MISSING}
    return _values(candidate).get(name, defaults.get(name))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
