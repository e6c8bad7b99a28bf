"""The comparison that settings were tuned for: data set, protocol, its mAP and network."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxyhash.cutoff import map_name
from proxyhash.data import get_protocol
from proxyhash.experiments.records import RecordStore
from proxyhash.utils.errors import InputError

KEYS = ("dataset", "protocol", "metric", "tags", "backbone", "pretrained", "image_size", "finetune")
_DEFAULTS = {"pretrained": True, "finetune": False}  # None for the others


def tuned_for(data: Mapping[str, Any], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return what settings are tuned for, from the data and the protocol of a record; defaults are left out.

    The mAP is named if it has another cutoff or denominator than the protocol.

    Examples
    --------
    >>> data = {"name": "digits", "tags": None, "backbone": "convnet", "image_size": None, "finetune": False}
    >>> tuned_for(data, {"protocol": "holdout"})
    {'dataset': 'digits', 'protocol': 'holdout', 'backbone': 'convnet'}
    >>> tuned_for(data, {"protocol": "holdout", "top": 100, "denominator": "capped"})["metric"]
    'mAP@100[capped]'
    """
    name, dataset = protocol["protocol"], data["name"]
    metric = map_name(protocol.get("top"), protocol.get("denominator", "relevant"))
    usual = get_protocol(name, dataset).map_name
    found = {**data, "dataset": dataset, "protocol": name, "metric": None if metric == usual else metric}
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
    found = [tuned_for(r.data, r.protocol) for r in records if r.protocol["eval_on"] == "validation"]
    if not found or any(each != found[0] for each in found):
        raise InputError(
            f"{path} does not say what its settings were tuned for, and no records beside it do; run proxyhash tune again, "
            "or add a table [tuned_for] with dataset, protocol and backbone."
        )
    return found[0]


def _describe(key: str, value: Any) -> str:
    found = _DEFAULTS.get(key, "the default") if value is None else value
    return str(found).lower() if isinstance(found, bool) else str(found)
