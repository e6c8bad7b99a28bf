"""`proxyhash doctor`: diagnostics of the installation."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell
from proxyhash.cli.parameters import Device, Json
from proxyhash.cli.progress import progress_bars

if TYPE_CHECKING:
    from proxyhash.training.self_check import SelfCheckReport


def doctor(*, device: Device | None = None, json_: Json = False) -> None:
    """Show versions, devices, threads, caches, free disk space and extras, with the commands that install the missing ones.

    With a device, check it instead: a tiny network is trained and encodes there, and is compared with the CPU. It takes
    less than a minute, and the exit code is 1 if a check fails.

      proxyhash doctor --device cuda

    Parameters
    ----------
    device
        Device to check: auto, cpu, cuda, cuda:1 or mps.
    json_
        Print JSON instead of a table.
    """
    if device is not None:
        _check_device(device, as_json=json_)
        return
    from proxyhash.utils.diagnostics import collect_diagnostics

    found = collect_diagnostics(Path.cwd())
    if json_:
        print(json.dumps(found, indent=2))
        return
    _print_table(_rows(found))


def _print_table(rows: Iterable[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, text in rows:
        table.add_row(cell(name, "bold"), cell(text))
    SafeConsole(highlight=False).print(table)


def _check_device(device: str, *, as_json: bool) -> None:
    from proxyhash.training.self_check import run_self_check

    with progress_bars() as progress:
        report = run_self_check(device, progress=progress)
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print_table(_check_rows(report))
    if not report.ok:
        sys.exit(1)


def _check_rows(report: "SelfCheckReport") -> Iterator[tuple[str, str]]:
    memory = "" if report.memory_gib is None else f", {report.memory_gib} GiB"
    system = f"{report.machine['system']}, {report.machine['processor']}, {report.machine['cores']} cores"
    yield "device", f"{report.device}: {report.device_name}{memory}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield "machine", system
    here = f"mAP {report.map:.3f} in {report.train_seconds:.1f} s ({report.precision})"
    yield "training", f"{here}; on the CPU mAP {report.cpu_map:.3f} in {report.cpu_train_seconds:.1f} s (float32)"
    yield "bits that differ", ", ".join(f"{name} {100 * share:.3f} %" for name, share in report.bits_differ.items())
    yield "embeddings", ", ".join(f"{name} up to {value:.2g}" for name, value in report.embeddings_differ.items())
    yield "losses", f"{report.losses} methods"
    yield "images/s", ", ".join(f"{name} {value:,.0f}" for name, value in report.images_per_second.items())
    for problem in report.problems:
        yield "problem", problem
    yield "result", "ok" if report.ok else "attach this table to an issue"


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    machine, caches = found["machine"], found["caches"]
    yield "versions", ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    memory = "" if machine["memory_gib"] is None else f", {machine['memory_gib']} GiB"
    yield "machine", f"{machine['system']}, {machine['processor']}{memory}"
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
