"""Provenance of records in words: machine, versions, commit and dates."""

from collections.abc import Iterable, Mapping
from typing import Any

from proxyhash.experiments import Record

NOT_RECORDED = "not recorded"


def describe_provenance(records: Iterable[Record]) -> list[str]:
    """Return a sentence for each machine, set of versions and commit that records were made with.

    Parameters
    ----------
    records
        Records of one comparison.

    Returns
    -------
    list[str]
        Sentences, the most frequent first. What a record does not have is called "not recorded".

    Examples
    --------
    >>> describe_provenance([])
    []
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        made = (
            describe_machine(record.machine),
            describe_versions(record.versions),
            f"commit {record.commit or NOT_RECORDED}",
        )
        groups.setdefault("; ".join(made), []).append(record)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [f"Measured ({len(found)} results): {made}; date {describe_dates(found)}." for made, found in ordered]


def describe_dates(records: Iterable[Record]) -> str:
    """Return the day of records, or the first and the last."""
    dates = sorted({record.date for record in records if record.date})
    return " to ".join(dates if len(dates) < 2 else (dates[0], dates[-1])) or NOT_RECORDED


def describe_machine(machine: Mapping[str, Any]) -> str:
    """Return processor, number of cores and memory.

    >>> describe_machine({"processor": "AMD EPYC", "cores": 2, "memory_gib": 24}), describe_machine({})
    ('AMD EPYC, 2 cores, 24 GiB', 'machine not recorded')
    """
    cores, memory, device = (machine.get(name) for name in ("cores", "memory_gib", "device"))
    found = [
        machine.get("processor") or f"processor {NOT_RECORDED}",
        f"{cores} core{'' if cores == 1 else 's'}" if cores else None,
        f"{memory} GiB" if memory else None,
        device,
    ]
    return ", ".join(filter(None, found)) if machine else f"machine {NOT_RECORDED}"


def describe_versions(versions: Mapping[str, str]) -> str:
    """Return names and versions of packages."""
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or f"versions {NOT_RECORDED}"
