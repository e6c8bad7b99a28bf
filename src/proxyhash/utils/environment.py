"""Package versions and machine that a result was made with."""

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from proxyhash.utils.parallel import available_threads

_PACKAGES = ("proxyhash", "torch", "numpy", "numba", "onnxruntime", "scipy")


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
