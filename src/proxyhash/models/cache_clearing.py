"""Deletion of entries of the user's cache."""

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from proxyhash.models.cache_entries import CacheEntry, list_cache
from proxyhash.models.cache_kinds import KINDS, TRASH, lock_path
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import try_lock
from proxyhash.utils.progress import Progress, no_progress

SECONDS_PER_DAY = 86_400
REASONS = {
    "being filled": "another process fills it",
    "symbolic link": "it is a symbolic link",
    "unknown": "proxyhash did not write it",
}
"""Why an entry in a state is not deleted."""


@dataclass(frozen=True)
class CacheClearing:
    """The entries that were deleted, or would be, and those that were not, with the reason."""

    deleted: tuple[CacheEntry, ...]
    skipped: tuple[tuple[CacheEntry, str], ...]

    @property
    def num_bytes(self) -> int:
        """Return the size of what was deleted."""
        return sum(entry.num_bytes for entry in self.deleted)


def clear_cache(
    names: Sequence[str] = (),
    *,
    root: Path | None = None,
    older_than: int | None = None,
    dry_run: bool = False,
    now: float | None = None,
    progress: Progress = no_progress,
) -> CacheClearing:
    """Delete entries of the cache. An entry that another process fills is skipped, and so is what proxyhash did not write.

    Parameters
    ----------
    names
        Names of kinds or of entries; without any, all kinds that are computed again when they are needed.
    root
        The root of the cache; None for that of the user.
    older_than
        Delete only what was last used more than so many days ago.
    dry_run
        Delete nothing.
    now
        The time in seconds since 1970; None for the present.
    progress
        Called with the name of the work and the fraction that is done.

    Raises
    ------
    InputError
        For a name that neither a kind nor an entry has.

    Examples
    --------
    >>> clear_cache(["features"], root=Path("no such folder")).num_bytes
    0
    """
    now = time.time() if now is None else now
    chosen = _choose(list_cache(root, now=now, progress=progress), names)
    if older_than is not None:
        chosen = [entry for entry in chosen if now - entry.last_used > older_than * SECONDS_PER_DAY]
    deleted, skipped = [], []
    for number, entry in enumerate(chosen):
        progress("deleting", number / len(chosen))
        reason = REASONS.get(entry.state) or (None if dry_run else _delete(entry))
        if reason is None:
            deleted.append(entry)
        else:
            skipped.append((entry, reason))
    return CacheClearing(tuple(deleted), tuple(skipped))


def _choose(entries: list[CacheEntry], names: Sequence[str]) -> list[CacheEntry]:
    """Return the entries of the named kinds, and those with the names."""
    if not names:
        return [entry for entry in entries if entry.kind in KINDS and KINDS[entry.kind].is_derived]
    wanted = {name.rstrip("/") for name in names}
    for name in sorted(wanted - KINDS.keys()):
        if not any(name in _names(entry) for entry in entries):
            raise InputError(f"There is no kind or entry {name!r} in the cache; the kinds are {', '.join(KINDS)}.")
    return [entry for entry in entries if wanted & {entry.kind, *_names(entry)}]


def _names(entry: CacheEntry) -> set[str]:
    return {entry.name, entry.short_name, f"{entry.kind}/{entry.name}", f"{entry.kind}/{entry.short_name}"}


def _delete(entry: CacheEntry) -> str | None:
    """Delete an entry, and return None; return the reason if it stays."""
    try:
        with _exclusive(entry) as is_ours:
            if not is_ours:
                return REASONS["being filled"]
            _remove(entry.path)
    except InputError as error:
        return str(error).rstrip(".")
    except OSError as error:
        return error.strerror or str(error)
    return None


@contextmanager
def _exclusive(entry: CacheEntry) -> Iterator[bool]:
    """Yield whether no other process fills the entry; none begins to before the end."""
    if not KINDS[entry.kind].has_rows or entry.state == "leftover":
        yield True
        return
    path = lock_path(entry.path)
    with try_lock(path) as is_ours:
        try:
            yield is_ours
        finally:
            if is_ours:
                with suppress(OSError):  # Windows deletes no open file
                    path.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    """Delete a file or a folder; its name is gone in one step, so that an interruption leaves no part of an entry."""
    trash = Path(tempfile.mkdtemp(dir=path.parent, prefix=TRASH))
    try:
        path.replace(trash / path.name)
    finally:
        shutil.rmtree(trash)
