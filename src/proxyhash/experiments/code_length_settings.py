"""Settings that have a value for each code length, such as the triplet weight of `shclm:triplet=tuned`."""

import json
from collections.abc import Callable, Iterator, Mapping
from statistics import mean
from typing import Any

from proxyhash.experiments.records import Record
from proxyhash.methods import get_method, parse_method
from proxyhash.methods.base import TUNED
from proxyhash.utils.errors import InputError

ScoresByLength = dict[str, dict[int, dict[Any, float]]]
"""Validation mAP by setting, code length and value."""


def settings_at(label: str, table: Mapping[str, Any], code_lengths: tuple[int, ...]) -> dict[str, Any]:
    """Return the settings of a row at the code lengths of a trial: those of a table, then those of its label.

    A setting that the label has as `tuned` has the value of the table, or the default of those to tune it among. A value of
    the table may be a table by code length.
    """
    defaults = {setting: values[0] for setting, values in _tuned_settings(label).items()}
    typed = {setting: value for setting, value in parse_method(label)[1].items() if value != TUNED}
    found = {setting: _value_at(setting, value, code_lengths) for setting, value in table.items()}
    return {**defaults, **found, **typed}


def count_other_values(label: str) -> int:
    """Return the number of values beside the defaults of the settings that a label has as `tuned`.

    >>> count_other_values("shclm:triplet=tuned"), count_other_values("shclm:triplet=1")
    (1, 0)
    """
    return sum(len(values) - 1 for values in _tuned_settings(label).values())


def score_by_length(label: str, run: Callable[[str], list[Record]]) -> ScoresByLength:
    """Return the mAP at each code length of every value of the settings that a label has as `tuned`.

    `run` returns the records of a row, or none if its training failed, which counts as an mAP of 0. The label stands for the
    default value, so that its records are found again.
    """
    scores: ScoresByLength = {}
    for setting, (default, *others) in _tuned_settings(label).items():
        labels = {value: label.replace(f":{setting}={TUNED}", f":{setting}={json.dumps(value)}") for value in others}
        records = {value: run(row) for value, row in {default: label, **labels}.items()}
        scores[setting] = {
            bits: {
                value: mean([r.metrics["map"] for r in found if r.bits == bits] or [0.0]) for value, found in records.items()
            }
            for bits in sorted({record.bits for found in records.values() for record in found})
        }
    return scores


def toml_lines(row: str, scores: ScoresByLength) -> Iterator[str]:
    """Yield the lines of a file of tuned settings: the best value at each code length, with the mAP of all as a comment."""
    for setting, lengths in scores.items():
        yield f'[settings."{row}".{setting}]'
        for bits, found in lengths.items():
            listed = ", ".join(f"{json.dumps(value)} has mAP {score:.4f}" for value, score in found.items())
            yield f"{bits} = {json.dumps(max(found, key=lambda value: found[value]))}  # {listed}"


def _tuned_settings(label: str) -> dict[str, tuple[Any, ...]]:
    """Return the values to choose from of each setting that a label has as `tuned`."""
    name, own = parse_method(label)
    known = get_method(name).settings.VALUES_BY_LENGTH
    tuned = [setting for setting, value in own.items() if value == TUNED]
    for setting in tuned:
        if setting not in known:
            choice = f"choose from {', '.join(known)}" if known else "it has none"
            raise InputError(f"{setting} of {name} is no setting that is tuned for each code length; {choice}.")
    return {setting: known[setting] for setting in tuned}


def _value_at(setting: str, value: Any, code_lengths: tuple[int, ...]) -> Any:
    if not isinstance(value, Mapping):
        return value
    if len(code_lengths) > 1:
        raise InputError(f"{setting} has a value for each code length, and one network is trained for {code_lengths} bits.")
    bits = str(code_lengths[0])
    if bits not in value:
        raise InputError(f"{setting} has values for {', '.join(value)} bits, not for {bits}; tune it at that length too.")
    return value[bits]
