"""Folders of images in an index: only new and changed files are encoded."""

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.columns import Column, ColumnsLike, check_columns
from proxyhash.index.base import Index
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.items import FileStat, Labels
from proxyhash.index.results import AddResult
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress
from proxyhash.utils.random import permutation
from proxyhash.utils.registry import suggest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from proxyhash.data import FileImages, SkippedItems
    from proxyhash.index.queries import Features
    from proxyhash.models.encoder import Embedder

COMMIT_IMAGES = 4096  # in a transaction; a kill loses at most one transaction
COMMIT_SECONDS = 10.0  # or as many images as are encoded in this time

OnProgress = Callable[[int, int], None]
"""Called with the number of images that are done, and the number of all."""


@dataclass(frozen=True)
class SyncPlan:
    """Difference of a folder and the index: `to_encode` are indices into the images, `deleted` keys without a file."""

    keys: Sequence[str]
    stats: Sequence[FileStat | None]
    to_encode: Int64s
    unchanged: int
    deleted: Sequence[str]


class StoredCounts(NamedTuple):
    """Counts of a batch that was stored; `unchanged` are files that another process has stored meanwhile."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0


class FolderSync(Protocol):
    """Items of an index that came from one folder."""

    def known_files(self) -> dict[str, FileStat]:
        """Return the keys that came from this folder, with their files' size and time as they were then."""
        ...

    def existing_keys(self, keys: Sequence[str]) -> set[str]:
        """Return those of the keys that are in the index, from any folder."""
        ...

    def store(
        self,
        codes: Packed,
        keys: Sequence[str],
        labels: Labels,
        stats: Sequence[FileStat],
        *,
        columns: Mapping[str, Column] = MappingProxyType({}),
        features: "Features | None" = None,
    ) -> StoredCounts:
        """Store a batch durably, without the files that another process has stored meanwhile."""
        ...

    def remove(self, keys: Sequence[str]) -> int:
        """Remove those of the keys that are still there and came from this folder, and return how many."""
        ...


def add_folder(
    index: Index,
    folder: Path,
    skipped: "SkippedItems",
    *,
    prefix: str = "",
    prune: bool = False,
    columns: Sequence[str] | None = None,
    on_progress: OnProgress = lambda *_: None,
    embedder: "Embedder | None" = None,
) -> AddResult:
    """Encode the new and changed images of a folder, and store them under `prefix` and their path in the folder.

    With `prune`, items of this folder whose files are gone are removed. Everything that is left out is counted in `skipped`;
    if an image that cannot be read was in the index, its old code stays. Several processes may add the same folder at once:
    each file is stored once, and counted as unchanged by the others. `columns` names the columns of a metadata.csv that
    items get; None: all. Those of a file that did not change are not read again. `embedder` replaces the model; it must give
    embeddings with the same signs.
    """
    from proxyhash.data import FileImages, load_dataset
    from proxyhash.data.readers.listing import is_utf8

    start = time.monotonic()
    dataset = load_dataset(folder, strict=skipped.strict)
    skipped.update(dataset.skipped)
    if not isinstance(dataset.images, FileImages):
        raise InputError(f"{folder} is not a folder of image files.")
    if not is_utf8(str(dataset.images.root)):
        raise InputError(f"The name of {folder} is not UTF-8, so an index cannot store it; rename the folder.")
    chosen = check_columns(choose_columns(folder, dataset.columns, columns), len(dataset), index.columns)
    sync = index.folder_sync(dataset.images.root, prefix)
    known = sync.known_files()
    plan = plan_sync(known, dataset.images, prefix, skipped)
    _check_foreign_keys(sync, [plan.keys[number] for number in plan.to_encode], known)
    deleted = plan.deleted if prune else ()
    batches = []
    for batch in _encode_batches(index, dataset.images, plan.to_encode, skipped, on_progress, embedder):
        stats = [plan.stats[number] or FileStat(-1, -1) for number in batch.indices]
        labels = [dataset.labels_of(int(number)) for number in batch.indices]
        keys = [plan.keys[number] for number in batch.indices]
        values = {name: column.select(batch.indices) for name, column in chosen.items()}
        batches.append(sync.store(batch.codes, keys, labels, stats, columns=values, features=batch.features))
    index.fit_refinement()
    removed = sync.remove(deleted) if deleted else 0
    added, replaced, unchanged = (sum(counts) for counts in zip(StoredCounts(), *batches, strict=True))
    unreadable = len(plan.to_encode) - added - replaced - unchanged
    return AddResult(added, replaced, plan.unchanged + unchanged, removed, unreadable, time.monotonic() - start)


def choose_columns(folder: Path, columns: ColumnsLike, wanted: Sequence[str] | None) -> ColumnsLike:
    """Return those of the columns of a folder that are wanted; None: all. An unknown one is an InputError."""
    if wanted is None:
        return columns
    for name in wanted:
        if name not in columns:
            raise InputError(f"The metadata.csv of {folder} has no column {name}; {suggest(name, columns)}")
    return {name: columns[name] for name in wanted}


def plan_sync(known: dict[str, FileStat], images: "FileImages", prefix: str, skipped: "SkippedItems") -> SyncPlan:
    """Compare the files of a folder with those that the index knows."""
    from proxyhash.data.readers.listing import utf8_names

    keys = [prefix + name for name in images.names]
    stats = [_file_stat(images.path(number)) for number in range(len(images))]
    changed = [number for number, (key, stat) in enumerate(zip(keys, stats, strict=True)) if known.get(key) != stat]
    usable = utf8_names((keys[number] for number in changed), skipped)
    to_encode = [changed[row] for row in usable]
    deleted = sorted(set(known) - set(keys))
    return SyncPlan(keys, stats, np.array(to_encode, np.int64), len(keys) - len(changed), deleted)


def _file_stat(path: Path) -> FileStat | None:
    """Return size and time of a file; times wrap around at 64 bits, as those after April 2262 do not fit into a column."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return FileStat(stat.st_size, (stat.st_mtime_ns + 2**63) % 2**64 - 2**63)


def _check_foreign_keys(sync: FolderSync, keys: Sequence[str], own: Container[str]) -> None:
    """Raise an InputError if items of another folder have the same keys."""
    existing = sync.existing_keys([key for key in keys if key not in own])
    if existing:  # another process may have added them from the same folder since `own` was read
        existing -= sync.known_files().keys()
    if existing:
        raise InputError(foreign_key_message(min(existing)))


def foreign_key_message(key: str) -> str:
    """Return what to do about a key that an item from another folder has."""
    return f"{key} is in the index already, from elsewhere; give these keys a beginning with --prefix."


@dataclass(frozen=True, eq=False)
class _Batch:
    """Images by their `indices` (n,), their `codes` (n, bytes) and, for a refinement, `features` (n, num_features)."""

    indices: Int64s
    codes: Packed
    features: "NDArray[np.float32] | None"

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class _Counter:
    """Progress of one part of the images, after `done` others."""

    on_progress: OnProgress
    done: int
    size: int
    total: int

    def __call__(self, _: str, fraction: float) -> None:
        self.on_progress(self.done + round(fraction * self.size), self.total)


def _encode_batches(
    index: Index,
    images: "FileImages",
    to_encode: Int64s,
    skipped: "SkippedItems",
    on_progress: OnProgress,
    embedder: "Embedder | None",
) -> Iterator[_Batch]:
    """Yield images with their codes, enough for a transaction at a time."""
    if not len(to_encode):
        return
    waiting: list[_Batch] = []
    last_commit, total = time.monotonic(), len(to_encode)
    done = 0
    on_progress(0, total)
    for indices in _sample_first(index, to_encode):
        count = _Counter(on_progress, done, len(indices), total)
        for batch in _encode(index, images, indices, skipped, count, embedder):
            waiting.append(batch)
            if sum(map(len, waiting)) >= COMMIT_IMAGES or time.monotonic() - last_commit > COMMIT_SECONDS:
                yield _concat(waiting)
                waiting, last_commit = [], time.monotonic()
        done += len(indices)
    if waiting:
        yield _concat(waiting)


def _encode(
    index: Index,
    images: "FileImages",
    indices: Int64s,
    skipped: "SkippedItems",
    progress: Progress,
    embedder: "Embedder | None",
) -> Iterator[_Batch]:
    """Yield readable images with their codes and, if the index has a refinement, their features."""
    if not index.has_refinement:
        embed = (embedder or index.encoder).embed_batches
        for some, embeddings in embed(images, skipped, indices=indices, progress=progress):
            if len(some):
                yield _Batch(some, pack(binarize(embeddings)), None)
        return
    from proxyhash.index.refinement.encoders import feature_encoder

    outputs_of = (embedder or feature_encoder(index)).output_batches
    for some, outputs in outputs_of(images, skipped, indices=indices, progress=progress):
        if len(some):
            yield _Batch(some, pack(binarize(outputs.embeddings)), outputs.features)


def _sample_first(index: Index, to_encode: Int64s) -> list[Int64s]:
    """Return the images in two parts, a random sample first, if a refinement is still to be fitted on the first ones."""
    from proxyhash.index.refinement.storage import MAX_PENDING

    if not index.has_refinement or len(index) >= MAX_PENDING or len(to_encode) <= MAX_PENDING:
        return [to_encode]
    order = permutation(len(to_encode), 0, "refinement sample")
    return [np.sort(to_encode[order[:MAX_PENDING]]), np.sort(to_encode[order[MAX_PENDING:]])]


def _concat(batches: Sequence[_Batch]) -> _Batch:
    features = [batch.features for batch in batches if batch.features is not None]
    return _Batch(
        np.concatenate([batch.indices for batch in batches]),
        np.concatenate([batch.codes for batch in batches]),
        np.concatenate(features) if features else None,
    )
