"""`proxyhash doctor`: diagnostics of the installation."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell
from proxyhash.cli.parameters import Json


def doctor(*, json_: Json = False) -> None:
    """Show versions, devices, threads, caches, free disk space and extras, with the commands that install the missing ones.

    Parameters
    ----------
    json_
        Print JSON instead of a table.
    """
    from proxyhash.utils.diagnostics import collect_diagnostics

    found = collect_diagnostics(Path.cwd())
    if json_:
        print(json.dumps(found, indent=2))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, text in _rows(found):
        table.add_row(cell(name, "bold"), cell(text))
    SafeConsole(highlight=False).print(table)


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine, caches = found["machine"], found["caches"]
    yield "versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    yield "machine", f"{machine['system']}, {machine['processor']}, {machine['memory_gib']} GiB"
    yield "devices", ", ".join(found["devices"]) or "none: networks need torch"
    limits = "".join(f", {name}={value}" for name, value in found["threads"].items() if name != "cores")
    yield "threads", f"{found['threads']['cores']} cores{limits}"
    sizes = ", ".join(f"{name} {size / 1e6:,.0f} MB" for name, size in caches["bytes"].items()) or "empty"
    yield "caches", f"{caches['folder']}: {sizes}"
    for path, free in found["disk"].items():
        yield "disk", f"{path}: " + ("unknown" if free is None else f"{free / 2**30:,.1f} GiB free")
    for extra in found["extras"]:
        purpose = f" ({extra['purpose']})" if extra["purpose"] else ""
        installed = ", ".join(f"{name} {version}" for name, version in extra["installed"].items())
        status = f"not installed: {extra['install_command']}" if extra["install_command"] else installed
        yield extra["name"], status + purpose
    for warning in found["warnings"]:
        yield "warning", warning
