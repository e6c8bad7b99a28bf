"""Provenance of a result: package versions, machine, date and commit."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from proxyhash.utils.parallel import available_threads

_SOURCES = Path(__file__).parents[1]
_PACKAGES = ("proxyhash", "torch", "numpy", "numba", "onnxruntime", "scipy")


def provenance() -> dict[str, Any]:
    """Return what a result was made with: machine, versions, date, and the commit of the sources.

    Examples
    --------
    >>> list(provenance())
    ['machine', 'versions', 'date', 'commit']
    """
    date = datetime.now(UTC).date().isoformat()
    return {"machine": machine(), "versions": versions(), "date": date, "commit": commit()}


@cache
def commit() -> str | None:
    """Return the commit of the sources, with a + if they were changed since; None for an installed package."""
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top, "src", _SOURCES.name) != _SOURCES:  # else another project holds the environment
        return None
    found = _git("rev-parse", "--short=12", "HEAD")
    return None if found is None else found + ("+" if _git("status", "--porcelain", "-uno", "--", str(_SOURCES)) else "")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results may depend on, where installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Return the kind of machine, without anything that identifies it."""
    return {"system": platform.system(), "processor": _processor(), "cores": available_threads(), "memory_gib": _memory()}


def _git(*words: str) -> str | None:
    """Return the output of a command of git; None if it fails, or there is no git."""
    command = ["git", "-C", str(_SOURCES), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()


def _processor() -> str:
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _memory() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (ValueError, OSError, AttributeError):
        return None
