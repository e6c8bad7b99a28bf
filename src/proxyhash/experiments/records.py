"""Records: one JSON file for each result, whole or absent, with all that it depends on."""

import json
import re
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError, ProxyhashWarning

FORMAT = "proxyhash.record/1"


@dataclass(frozen=True)
class Record:
    """A result: of what, how it was measured, what it cost, and where."""

    key: str  # of the trial it came from, in its circumstances
    data: dict[str, Any]  # data set, tags, backbone, image size
    protocol: dict[str, Any]
    trial: dict[str, Any]
    bits: int
    metrics: dict[str, Any]
    seconds: dict[str, float]
    versions: dict[str, str]
    machine: dict[str, Any]

    @property
    def file_name(self) -> str:
        """Return a name that people can read and that no other result has."""
        number = f"-round{self.trial['round']}" if self.trial["round"] else ""
        label = re.sub(r"[^\w.+-]+", "-", self.trial["label"])
        return f"{label}-{self.bits}-seed{self.trial['seed']}{number}-{self.key}.json"

    def write(self, folder: Path) -> None:
        """Write the record to its file in a folder."""
        content = {"format": FORMAT, **asdict(self)}
        with atomic_write(folder / self.file_name) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_record(path: Path) -> Record:
    """Read one record."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, record = content.pop("format"), Record(**content)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a record, or damaged: {error}.") from error
    kinds = {each.name: {"key": str, "bits": int}.get(each.name, dict) for each in fields(Record)}
    if version != FORMAT or not all(isinstance(getattr(record, name), kind) for name, kind in kinds.items()):
        raise InputError(f"{path} is not a record of this version.")
    return record


def read_records(folder: Path) -> list[Record]:
    """Read all records below a folder; a damaged one is named in a warning and left out."""
    records = []
    for path in sorted(folder.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # what is under way, or half written
        try:
            records.append(read_record(path))
        except InputError as error:
            warnings.warn(f"Left out: {error}", ProxyhashWarning, 2)
    return records
