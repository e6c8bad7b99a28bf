"""Memory that a process can still use: of the machine, and within the limits of its control groups."""

from collections.abc import Iterator
from pathlib import Path

from proxyhash.utils.errors import InputError

_MEMINFO, _OWN_GROUPS, _GROUPS = Path("/proc/meminfo"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_FILES_2 = ("memory.max", "memory.current", "inactive_file")  # of control groups 2: limit, use, cache that can be freed
_FILES_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_memory() -> int | None:
    """Return how many bytes can be allocated without swapping; None if the system does not tell.

    It is the least of what is free on the machine and in each control group above the process, as containers have them.
    Files in memory that can be read again count as free.
    """
    found = [_machine_bytes(), *(_group_bytes(folder, files) for folder, files in _group_folders())]
    return min((each for each in found if each is not None), default=None)


def check_memory(needed: int, what: str, remedy: str) -> None:
    """Raise an InputError if something needs more memory than is available.

    Parameters
    ----------
    needed
        Bytes that it needs.
    what
        What needs them, with its verb, as in "The codes need".
    remedy
        What to do instead.

    Examples
    --------
    >>> check_memory(1000, "The codes need", "use fewer bits")
    """
    available = available_memory()
    if available is not None and needed > available:
        raise InputError(f"{what} {_readable(needed)} of memory, and {_readable(available)} are available; {remedy}.")


def _readable(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.1f} MB"


def _machine_bytes() -> int | None:
    fields = _read_fields(_MEMINFO)
    return 1024 * fields["MemAvailable:"] if "MemAvailable:" in fields else None


def _group_folders() -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """Yield the folders of the control groups of this process and of those above, with the names of their files."""
    for line in _read(_OWN_GROUPS).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers not in ("", "memory"):
            continue
        root, files = (_GROUPS, _FILES_2) if not controllers else (_GROUPS / "memory", _FILES_1)
        own = root / path.strip("/")
        yield from ((folder, files) for folder in (own, *own.parents) if folder == root or root in folder.parents)


def _group_bytes(folder: Path, files: tuple[str, str, str]) -> int | None:
    """Return what is left of the limit of a control group, None without one."""
    limit, used = (_read(folder / name).strip() for name in files[:2])
    if not limit.isdecimal() or not used.isdecimal():  # "max": no limit
        return None
    return max(0, int(limit) - int(used) + _read_fields(folder / "memory.stat").get(files[2], 0))


def _read_fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    rows = (line.split() for line in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
