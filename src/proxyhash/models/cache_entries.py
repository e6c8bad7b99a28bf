"""List of what is stored in the user's cache."""

import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proxyhash.models.cache_kinds import (
    KINDS,
    MODELS,
    PROGRESS,
    CacheKind,
    RowSource,
    is_temporary_model,
    lock_path,
    parse_row_name,
)
from proxyhash.utils.locks import is_locked
from proxyhash.utils.paths import cache_root
from proxyhash.utils.progress import Progress, no_progress

OTHER = "other"  # kind of what proxyhash did not write
IDLE_SECONDS = 120  # a download stops after 30 seconds without a byte
State = Literal["complete", "interrupted", "being filled", "leftover", "symbolic link", "unknown"]


@dataclass(frozen=True)
class CacheEntry:
    """An entry of the cache: a folder or a file.

    Parameters
    ----------
    kind, name, path
        The name of its kind, its own name and its path.
    state
        Whether it is complete. A "leftover" is a temporary folder of a process that was stopped, and "unknown" is what
        proxyhash did not write.
    num_bytes
        The size of its files.
    last_used
        The time when it was last used, in seconds since 1970. Where that is not known, it was changed then.
    source
        What its name says, for features and activations.
    shape
        The shape of its rows, the number of images first.
    rows_done
        The number of rows that were noted before an interruption.
    """

    kind: str
    name: str
    path: Path
    state: State
    num_bytes: int
    last_used: float
    source: RowSource | None = None
    shape: tuple[int, ...] | None = None
    rows_done: int | None = None

    @property
    def short_name(self) -> str:
        """Return the key of features or activations, and the name of another entry."""
        return self.name if self.source is None else self.source.key

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        source = self.source
        return {
            "kind": self.kind,
            "entry": self.name,
            "path": str(self.path),
            "state": self.state,
            "bytes": self.num_bytes,
            "last_used": datetime.fromtimestamp(self.last_used, UTC).isoformat(timespec="seconds"),
            "dataset": source and source.dataset,
            "network": source and source.network,
            "image_size": source and source.image_size,
            "upper": source and source.upper,
            "shape": self.shape and list(self.shape),
            "rows_done": self.rows_done,
        }


def list_cache(root: Path | None = None, *, now: float | None = None, progress: Progress = no_progress) -> list[CacheEntry]:
    """Return the entries of the cache by kind and name, and last what proxyhash did not write.

    Symbolic links are not followed, except that the root may be one.

    Parameters
    ----------
    root
        The root of the cache; None for that of the user.
    now
        The time in seconds since 1970; None for the present.
    progress
        Called with the name of the work and the fraction that is done.

    Examples
    --------
    >>> list_cache(Path("no such folder"))
    []
    """
    now = time.time() if now is None else now
    paths, found = list(_paths(cache_root() if root is None else root)), []
    for number, (kind, path) in enumerate(paths):
        progress("reading the cache", number / len(paths))
        try:
            found.append(_read_entry(kind, path, now))
        except FileNotFoundError:  # deleted meanwhile
            continue
    order = [*KINDS, OTHER]
    return sorted(found, key=lambda entry: (order.index(entry.kind), entry.name))


def _paths(root: Path) -> Iterator[tuple[CacheKind | None, Path]]:
    """Yield all entries and their kinds, None for what has no kind."""
    for child in root.iterdir() if root.is_dir() else ():
        kind = KINDS.get(child.name)
        if kind is not None and child.is_dir() and not is_link(child):
            yield from ((kind, path) for path in child.iterdir() if not kind.is_lock(path.name))
        elif kind is not None and is_link(child):
            yield kind, child
        else:
            yield MODELS if is_temporary_model(child.name) else None, child


def is_link(path: Path) -> bool:
    """Return whether a path is a symbolic link, or a junction of Windows."""
    status = path.lstat()
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (junction is not None and getattr(status, "st_reparse_tag", 0) == junction)


def _read_entry(kind: CacheKind | None, path: Path, now: float) -> CacheEntry:
    name = OTHER if kind is None else kind.name
    if is_link(path):
        return CacheEntry(name, path.name, path, "symbolic link", 0, path.lstat().st_mtime)
    usage = _measure(path)
    if kind is None:
        return CacheEntry(name, path.name, path, "unknown", usage.num_bytes, usage.read)
    state = _state(kind, path, is_idle=now - usage.changed > IDLE_SECONDS)
    if not kind.has_rows or state in {"unknown", "leftover"}:
        return CacheEntry(name, path.name, path, state, usage.num_bytes, usage.read)
    # Reading a list reads the headers of the files, so the time of reading says nothing; `RowCache.read` changes the folder.
    source, done = parse_row_name(path.name), None if state == "complete" else _rows_done(path)
    return CacheEntry(name, path.name, path, state, usage.num_bytes, usage.changed, source, _shape(kind, path), done)


def _state(kind: CacheKind, path: Path, *, is_idle: bool) -> State:
    is_folder = path.is_dir()
    if is_folder and (kind.is_temporary(path.name) or is_temporary_model(path.name)):
        return "leftover" if is_idle else "being filled"
    if not kind.owns(path.name, is_folder=is_folder):
        return "unknown"
    if kind.has_rows:
        if is_locked(lock_path(path)):
            return "being filled"
        return "complete" if (path / f"{kind.name}.npy").is_file() else "interrupted"
    if path.suffix != ".part":
        return "complete"
    return "interrupted" if is_idle else "being filled"


@dataclass(frozen=True)
class _Usage:
    """The size of files, and when the last of them was changed, and read or changed."""

    num_bytes: int
    changed: float
    read: float


def _measure(path: Path) -> _Usage:
    """Return the usage of a file or a folder, without following links."""
    own = path.lstat()
    usages = [_of_status(own)]
    for base, folders, files in os.walk(path):
        for name in (*folders, *files):
            try:
                usages.append(_of_status((Path(base) / name).lstat()))
            except OSError:  # deleted meanwhile
                continue
    changed = max(usage.changed for usage in usages)
    return _Usage(sum(usage.num_bytes for usage in usages), changed, max(changed, *(usage.read for usage in usages)))


def _of_status(status: os.stat_result) -> _Usage:
    """Return the usage of one file; files of archives have old times of modification, so the time of the change counts."""
    changed = max(status.st_mtime, status.st_ctime)
    if stat.S_ISDIR(status.st_mode):  # its size is no content, and a list reads it
        return _Usage(0, changed, changed)
    return _Usage(status.st_size, changed, max(changed, status.st_atime))


def _shape(kind: CacheKind, path: Path) -> tuple[int, ...] | None:
    """Return the shape in the header of the rows, also of an extraction that is not complete."""
    for file in (path / f"{kind.name}.npy", path / f"{kind.name}.part"):
        if file.is_file():
            try:
                with file.open("rb") as handle:
                    np.lib.format.read_magic(handle)
                    return np.lib.format.read_array_header_1_0(handle)[0]
            except (OSError, ValueError, EOFError):
                continue
    return None


def _rows_done(path: Path) -> int:
    """Return the number of rows that an interrupted extraction noted."""
    try:
        done = json.loads((path / PROGRESS).read_text(encoding="utf-8"))["done"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return done if type(done) is int else 0
