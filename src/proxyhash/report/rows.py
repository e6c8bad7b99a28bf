"""What the rows of a table are called: by method, and by what else differs where a method was run in several ways."""

from collections.abc import Iterable
from typing import Any

from proxyhash.experiments import Record


def row_names(records: Iterable[Record]) -> list[str]:
    """Return the row of each record: its label, with the facts in which trials of that label differ.

    Seeds, rounds and lengths do not make a row, nor does what differs between rounds only: it was chosen for each by itself.
    What was trained together with other lengths is not what was trained alone.
    """
    found = [(record.trial["label"], record.trial["fold"], _settings(record.trial)) for record in records]
    variants: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for label, number, facts in found:
        variants.setdefault(label, {}).setdefault(number, []).append(facts)
    differing = {
        label: dict.fromkeys(key for facts in rounds.values() for key in _differing(facts))
        for label, rounds in variants.items()
    }
    return [_name(label, {key: facts.get(key) for key in differing[label]}) for label, _, facts in found]


def _settings(trial: dict[str, Any]) -> dict[str, Any]:
    plan = {key: value for key, value in (trial["optim"] or {}).items() if key != "seed"}
    lengths = trial["code_lengths"]
    return {**trial["settings"], **plan, "trained": f"for {lengths} bits at once" if len(lengths) > 1 else "alone"}


def _differing(variants: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for facts in variants for key in facts)
    return [key for key in keys if len({repr(facts.get(key)) for facts in variants}) > 1]


def _name(label: str, facts: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in facts.items())
    return f"{label} ({said})" if said else label
