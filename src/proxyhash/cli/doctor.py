"""`proxyhash doctor`: what this installation has and lacks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxyhash.cli.output import Json


def doctor(*, json_: Json = False) -> None:
    """Show versions, devices, threads, caches, disk and optional parts, and what to type to get the others.

    Parameters
    ----------
    json_
        Print JSON instead of a table.
    """
    from proxyhash.cli.health import examine

    facts = examine(Path.cwd())
    if json_:
        print(json.dumps(facts, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, text in _rows(facts):
        table.add_row(Text(name, "bold"), Text(text))
    Console(highlight=False).print(table)


def _rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine, caches = facts["machine"], facts["caches"]
    yield "versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    yield "machine", f"{machine['system']}, {machine['processor']}, {machine['memory_gib']} GiB"
    yield "devices", ", ".join(facts["devices"]) or "none: networks need torch"
    said = ", ".join(f"{name}={value}" for name, value in facts["threads"].items() if name != "cores")
    yield "threads", f"{facts['threads']['cores']} cores" + (f", {said}" if said else "")
    sizes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in caches["bytes"].items()) or "empty"
    yield "caches", f"{caches['folder']}: {sizes}"
    for place, free in facts["disk"].items():
        yield "disk", f"{place}: " + ("unknown" if free is None else f"{free / 2**30:,.1f} GiB free")
    for part in facts["parts"]:
        purpose = f" ({part['purpose']})" if part["purpose"] else ""
        installed = ", ".join(f"{name} {version}" for name, version in part["installed"].items())
        lacks = f"not installed: {part['advice']}" if part["advice"] else installed
        yield part["name"], lacks + purpose
    for warning in facts["warnings"]:
        yield "warning", warning
