"""Memory: settings of the allocator, and how much is free."""

import ctypes
import sys
from pathlib import Path

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system; without glibc do nothing.

    A training step frees and allocates gigabytes. The system zeroes every page it hands out, which takes a third of the
    step's time. The process stays as large as its largest step.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # large blocks come from the heap too
        mallopt(_TRIM_THRESHOLD, -1)  # the heap never shrinks


def available_memory() -> int | None:
    """Return the bytes that the system and the control group of this process have free; None if that is not known."""
    system = _read_numbers(Path("/proc/meminfo")).get("MemAvailable:")
    found = [None if system is None else 1024 * system, _group_memory()]
    return min((number for number in found if number is not None), default=None)


def _group_memory(folder: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the bytes that the control group of a container may still use; None without a limit."""
    try:
        limit, used = ((folder / name).read_text(encoding="ascii").strip() for name in ("memory.max", "memory.current"))
    except OSError:
        return None
    cached = _read_numbers(folder / "memory.stat").get("inactive_file", 0)  # pages of files, which the system can drop
    return max(0, int(limit) - int(used) + cached) if limit.isdecimal() else None


def _read_numbers(path: Path) -> dict[str, int]:
    """Return the numbers of a file with lines of a name and a number; nothing if it cannot be read."""
    try:
        rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
