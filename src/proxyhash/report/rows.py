"""What the rows of a table are called: by method, and by what else differs where a method was run in several ways."""

from collections.abc import Iterable
from typing import Any

from proxyhash.experiments import Record


def row_names(records: Iterable[Record]) -> list[str]:
    """Return the row of each record: its label, with the facts in which trials of that label differ.

    Seeds, rounds and lengths do not make a row; what was trained together with other lengths is not what was trained alone.
    """
    found = [(record.trial["label"], _facts(record.trial)) for record in records]
    differing = {label: _differing([facts for other, facts in found if other == label]) for label, _ in found}
    return [_name(label, {key: facts.get(key) for key in differing[label]}) for label, facts in found]


def _facts(trial: dict[str, Any]) -> dict[str, Any]:
    plan = {key: value for key, value in (trial["plan"] or {}).items() if key != "seed"}
    lengths = trial["lengths"]
    return {**trial["settings"], **plan, "trained": f"for {lengths} bits at once" if len(lengths) > 1 else "alone"}


def _differing(variants: list[dict[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for facts in variants for key in facts)
    return [key for key in keys if len({repr(facts.get(key)) for facts in variants}) > 1]


def _name(label: str, facts: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in facts.items())
    return f"{label} ({said})" if said else label
