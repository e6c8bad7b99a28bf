"""The comparison that settings were tuned for: data set, protocol and network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxyhash.experiments.records import RecordStore
from proxyhash.utils.errors import InputError

KEYS = ("dataset", "protocol", "tags", "backbone", "pretrained", "image_size", "finetune")
_DEFAULTS = {"pretrained": True, "finetune": False}  # None for the others


def tuned_for(data: Mapping[str, Any], protocol: str) -> dict[str, Any]:
    """Return what settings are tuned for, from the data and the protocol of a record; defaults are left out.

    Examples
    --------
    >>> tuned_for({"name": "digits", "tags": None, "backbone": "convnet", "image_size": None, "finetune": False}, "holdout")
    {'dataset': 'digits', 'protocol': 'holdout', 'backbone': 'convnet'}
    """
    found = {**data, "dataset": data["name"], "protocol": protocol}
    return {key: found[key] for key in KEYS if found.get(key) is not None and found[key] != _DEFAULTS.get(key)}


def check_tuned_for(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise an `InputError` if settings were tuned for another comparison.

    Examples
    --------
    >>> check_tuned_for({"protocol": "transfer"}, {"protocol": "holdout"})
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: The settings were tuned for protocol transfer, not holdout; run proxyhash tune for it.
    """
    for key in KEYS:
        if given.get(key) != wanted.get(key):
            values = (_describe(key, each.get(key)) for each in (given, wanted))
            raise InputError("The settings were tuned for {} {}, not {}; run proxyhash tune for it.".format(key, *values))


def tuned_for_of_records(path: Path) -> dict[str, Any]:
    """Return what an earlier file of tuned settings was tuned for: the validation records beside it say it.

    Raises
    ------
    InputError
        If there are none, or they are of several comparisons.
    """
    records = RecordStore(path.parent).read() if path.parent.is_dir() else []
    found = [tuned_for(r.data, r.protocol["protocol"]) for r in records if r.protocol["eval_on"] == "validation"]
    if not found or any(each != found[0] for each in found):
        raise InputError(
            f"{path} does not say what its settings were tuned for, and no records beside it do; run proxyhash tune again, "
            "or add a table [tuned_for] with dataset, protocol and backbone."
        )
    return found[0]


def _describe(key: str, value: Any) -> str:
    return str(_DEFAULTS.get(key, "the default") if value is None else value).lower()
