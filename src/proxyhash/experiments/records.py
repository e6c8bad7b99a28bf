"""Experiment records: one result per line of a `records.jsonl` file."""

import hashlib
import json
import re
import warnings
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from proxyhash.cutoff import map_name
from proxyhash.methods import get_method, list_methods
from proxyhash.utils.config import check_table, from_mapping
from proxyhash.utils.errors import ProxyhashWarning
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.json_lines import append_json_line, parse_json_line, split_json_lines
from proxyhash.utils.legacy_names import RECORD_FILE_PATTERN, upgrade_map_name, upgrade_record

FORMAT = "proxyhash.record/2"
RECORDS_FILE = "records.jsonl"
_PROTOCOL_KEYS = ("protocol", "version", "fingerprint", "eval_on")  # those that decide the metrics


@dataclass(frozen=True)
class Record:
    """One result of one method at one code length.

    Attributes
    ----------
    data
        Data set, tags, backbone, image size, whether the backbone was fine-tuned, and `pretrained` if it is false.
    protocol
        Name, version, sizes and fingerprint of the split, cutoff (`top`) and `denominator` of mAP, and `eval_on`: `test` or
        `validation`. Without a denominator, mAP is over all relevant items.
    trial
        Label of the row, method, all settings, code lengths trained together, seed, fold, and optimizer settings.
    bits
        Code length.
    metrics
        Metrics, curves and histograms by name. `map` is the mAP of the protocol; `all` has it by each denominator.
    seconds
        Time of the training (`fit`) and of everything (`all`).
    versions, machine
        Packages and hardware.
    stale
        The reason why the metrics are out of date; None for a valid record.
    date, commit
        Day of the measurement, and commit of the sources, with a + if they were changed since; None if not recorded.
    revision
        Revision of the method, see `register_method`.
    at_edge
        Settings that tuning chose at an edge of what it tried, "lowest" or "highest"; None for a trial that was not tuned.
    """

    data: dict[str, Any]
    protocol: dict[str, Any]
    trial: dict[str, Any]
    bits: int
    metrics: dict[str, Any]
    seconds: dict[str, float]
    versions: dict[str, str]
    machine: dict[str, Any]
    stale: str | None = None
    date: str | None = None
    commit: str | None = None
    revision: int = 1
    at_edge: dict[str, str] | None = None

    @cached_property
    def key(self) -> str:
        """Digest of everything that the metrics depend on; code lengths that were trained together share it."""
        return settings_key(self.data, self.protocol, self.trial)

    @property
    def name(self) -> str:
        """Readable unique name, such as `shclm-32-seed0-2a6119fc843a`."""
        fold = f"-fold{self.trial['fold']}" if self.trial["fold"] else ""
        label = re.sub(r"[^\w.+-]+", "-", self.trial["label"])
        return f"{label}-{self.bits}-seed{self.trial['seed']}{fold}-{self.key}"

    @property
    def map_name(self) -> str:
        """Name of the mAP of the protocol, such as `mAP@5000[retrieved]`."""
        return map_name(*_cutoff(self.protocol))

    def as_dict(self) -> dict[str, Any]:
        """Return the record as one JSON object."""
        content = {"format": FORMAT, REQUIRES: RELEASE, **asdict(self)}
        return {key: value for key, value in content.items() if value is not None}

    @property
    def stale_reason(self) -> str | None:
        """Why the record is out of date; None for a valid record, and for one of a method that is not installed."""
        if self.stale:
            return self.stale
        method = self.trial["method"]
        revision = get_method(method).revision if method in list_methods() else self.revision
        return None if self.revision >= revision else f"measured with revision {self.revision} of {method}, now {revision}"


def settings_key(data: dict[str, Any], protocol: dict[str, Any], trial: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits of the settings; equal numbers give equal digits, whether int or float."""
    top, denominator = _cutoff(protocol)
    cutoff = [] if top is None else [top, denominator]  # without one, the denominators are one
    settings = {"data": data, "protocol": [*(protocol.get(name) for name in _PROTOCOL_KEYS), *cutoff], "trial": trial}
    return hashlib.sha256(json.dumps(_with_floats(settings), sort_keys=True).encode()).hexdigest()[:12]


class RecordStore:
    """Records of one folder, found by their settings.

    Several processes may use one folder: every lookup sees the records that others have appended.
    Of several records with the same settings the last one counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS_FILE
        legacy = (_parse(path.read_bytes(), str(path)) for path in legacy_record_files(folder))
        self._records = {(record.key, record.bits): record for record in legacy if record is not None}
        self._offset = self._lines = 0  # of the part that has been read

    def find(self, key: str, bits: int) -> Record | None:
        """Return the record of these settings, or None."""
        self._read_new_lines()
        return self._records.get((key, bits))

    def read(self) -> list[Record]:
        """Return all records in the order in which they were first written."""
        self._read_new_lines()
        return list(self._records.values())

    def append(self, record: Record) -> None:
        """Write a record to the end of the file."""
        append_json_line(self.path, record.as_dict())

    def _read_new_lines(self) -> None:
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < self._offset:  # converted meanwhile
            self._offset = self._lines = 0
        if size == self._offset:
            return
        with self.path.open("rb") as handle:
            handle.seek(self._offset)
            content = handle.read()
        for number, line in enumerate(split_json_lines(content), self._lines + 1):
            record = _parse(line, f"line {number} of {self.path}")
            if record is not None:
                self._records[record.key, record.bits] = record
        complete = content[: content.rfind(b"\n") + 1]
        self._offset += len(complete)
        self._lines += complete.count(b"\n")


def read_records(folder: Path) -> list[Record]:
    """Read all records of a folder and the folders inside it.

    Parameters
    ----------
    folder
        A folder that `proxyhash benchmark` wrote.

    Returns
    -------
    list[Record]
        The records, folder by folder. A damaged line is reported by a warning and left out.

    Examples
    --------
    >>> from pathlib import Path
    >>> read_records(Path("no-such-folder"))
    []
    """
    return [record for each in record_folders(folder) for record in RecordStore(each).read()]


def record_folders(folder: Path) -> list[Path]:
    """Return all folders below that hold records; hidden ones are of trials in progress."""
    files = [*folder.rglob(RECORDS_FILE), *filter(_is_legacy_file, folder.rglob("*.json"))]
    visible = (path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))
    return sorted({path.parent for path in visible})


def legacy_record_files(folder: Path) -> list[Path]:
    """Return the records of release 0.1, which wrote one JSON file each."""
    return sorted(filter(_is_legacy_file, folder.glob("*.json")))


def parse_record(content: dict[str, Any]) -> Record:
    """Return the record of a JSON object, in today's names."""
    check_table("a record", content)
    upgraded = upgrade_record(content, FORMAT)
    check_format(Path("it"), upgraded.pop("format", None), (FORMAT,), upgraded.pop(REQUIRES, None))
    record = from_mapping(Record, upgraded)
    if "all" not in record.metrics:
        return record
    every = {upgrade_map_name(name): value for name, value in record.metrics["all"].items()}
    return replace(record, metrics={**record.metrics, "all": every})


def _parse(text: bytes, source: str) -> Record | None:
    """Return a record; a damaged one is reported by a warning."""
    try:
        record = parse_record(parse_json_line(text))
        str(record.key + record.name)  # both are made of its settings
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error).rstrip(".")
        warnings.warn(f"Left out: {source} is not a record, or damaged: {reason}.", ProxyhashWarning, 2)
        return None
    return record


def _cutoff(protocol: dict[str, Any]) -> tuple[int | None, str]:
    """Return cutoff and denominator of a record's protocol; earlier records do not name theirs, all relevant items."""
    return protocol.get("top"), protocol.get("denominator", "relevant")


def _is_legacy_file(path: Path) -> bool:
    return re.search(RECORD_FILE_PATTERN, path.name) is not None


def _with_floats(value: Any) -> Any:
    """Return nested settings with every int as a float."""
    if isinstance(value, dict):
        return {name: _with_floats(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_floats(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
