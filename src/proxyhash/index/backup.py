"""Backups of a local index: consistent while others write, incremental, and themselves indexes that can be searched."""

import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.index.calibration import Calibration
from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import blocks, item_arrays, items, texts
from proxyhash.index.local.connection import translate_error
from proxyhash.index.local.index import FILE, UPGRADE_LOCK, LocalIndex
from proxyhash.index.local.store import WAIT_SECONDS, Store, VersionInfo, create_tables
from proxyhash.index.maintenance import drop_unused_models, verify
from proxyhash.index.model_store import check_model, model_dir
from proxyhash.models.storage import CALIBRATION, check_files, read_config
from proxyhash.utils.atomic_io import atomic_folder, atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import try_lock
from proxyhash.utils.progress import Progress, no_progress

_IDS_PER_STEP = 65_536  # item ids that are compared or copied at a time
_ATTEMPTS = 3  # of a backup, if an upgrade ends meanwhile
_VERSION_COLUMNS = ", ".join(("number", *VersionInfo._fields, "centroids", "checksum"))
_BLOCK_COLUMNS = (
    "version, number, generation, count, min_id, max_id, checksum, info_checksum, clusters, item_ids, codes"  # of format 2
)


@dataclass(frozen=True)
class BackupResult:
    """Result of a backup: what it holds now, and what was copied and removed."""

    items: int
    items_copied: int
    items_removed: int
    blocks_copied: int
    blocks_removed: int
    models_copied: int
    bytes_on_disk: int
    array_blocks_copied: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


@dataclass
class _Counts:
    items_copied: int = 0
    items_removed: int = 0
    blocks_copied: int = 0
    blocks_removed: int = 0
    models_copied: int = 0
    array_blocks_copied: int = 0


def backup(index: LocalIndex, destination: Path, progress: Progress = no_progress) -> BackupResult:
    """Copy the last committed state of an index to another folder; later backups copy only what changed.

    The backup is an index: it can be opened, verified and searched. It has the old state or the new one at every moment,
    also if this process is killed. What is copied is compared with its checksums first, so that damage is never copied.
    An upgrade to another model that is running is left out.

    Parameters
    ----------
    index
        The index; others may write to it meanwhile.
    destination
        The folder of the backup: absent, empty, or an earlier backup of the same index.
    progress
        Called with the share of the items that are done.

    Raises
    ------
    InputError
        If the index is damaged, or the folder holds anything else than an earlier backup of it; the folder is unchanged.
    """
    check_apart(index.folder, destination)
    _remove_leftovers(destination)
    with closing(Store(index.folder / FILE)) as source:  # its own connection: other threads go on
        for attempt in range(_ATTEMPTS):
            try:
                with source.reading():
                    return _Copy(index.folder, source, progress).update(destination)
            except _ModelError as error:
                if attempt == _ATTEMPTS - 1 or not error.version_changed(index.store):
                    raise
    raise AssertionError("unreachable")


def restore(backup: Path, destination: Path, *, replace: bool = False, progress: Progress = no_progress) -> int:
    """Copy a backup, after reading and checking all of it, to a new index; return its number of items.

    The new index has another identity than the one that was backed up: it starts a new series of backups.

    Parameters
    ----------
    backup
        The folder of the backup.
    destination
        The folder of the new index.
    replace
        Replace an index in that folder, in one step. Processes that have it open go on with the new one.
    progress
        Called with the share of the items that are done.

    Raises
    ------
    InputError
        If the backup is damaged, or the folder exists and is not to be replaced; the folder is unchanged.
    """
    check_apart(backup, destination)
    _remove_leftovers(destination)
    if is_used(destination) and not replace:
        raise InputError(f"{destination} exists; restore to another folder, or replace it with --replace.")
    if is_used(destination) and not (destination / FILE).is_file():
        raise InputError(f"{destination} holds other things than an index; choose another folder.")
    with closing(Store(backup / FILE)) as source, source.reading():
        report = verify(LocalIndex(backup, source))
        if not report.ok:
            raise InputError(f"{backup} is damaged, so that nothing was restored: {report.problems[0]}")
        with ExitStack() as stack, atomic_folder(destination) as temporary:
            stack.enter_context(try_lock(temporary / UPGRADE_LOCK))
            _Copy(backup, source, progress).create(temporary, uuid.uuid4().hex)
            stack.enter_context(_write_lock(destination / FILE))  # until the folders are exchanged
    return report.items


class _ModelError(InputError):
    """A model could not be copied; perhaps because an upgrade has just replaced it."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version

    def version_changed(self, store: Store) -> bool:
        with store.reading():
            return store.active_version != self.version


@dataclass
class _Copy:
    """One copy of the active version of an index, inside a transaction that reads its file."""

    folder: Path
    source: Store
    progress: Progress
    counts: _Counts = field(default_factory=_Counts)

    def update(self, destination: Path) -> BackupResult:
        """Bring a backup to the state of the index; create it if it does not exist."""
        if (destination / FILE).is_file():
            with try_lock(destination / UPGRADE_LOCK) as locked:
                if not locked:
                    raise InputError(f"Another process is writing to {destination}; wait until it is done and try again.")
                self._continue(destination)
        elif is_used(destination):
            raise InputError(f"{destination} holds other things than a backup; choose another folder.")
        else:
            with ExitStack() as stack, atomic_folder(destination) as temporary:
                stack.enter_context(try_lock(temporary / UPGRADE_LOCK))  # until it is in place
                self.create(temporary, self.source.meta().index_id)
        total = sum(file.stat().st_size for file in destination.rglob("*") if file.is_file())
        return BackupResult(self.source.active_info().num_codes, **asdict(self.counts), bytes_on_disk=total)

    def create(self, folder: Path, index_id: str) -> None:
        """Write a new index to an empty folder that nobody else uses yet."""
        path = folder / FILE
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                create_tables(connection, index_id)
        except sqlite3.Error as error:
            raise translate_error(error, path) from error
        self._copy_model(folder)
        with closing(Store(path)) as target:
            target.rows("PRAGMA journal_mode = OFF")  # the folder is dropped if this is stopped
            self._mirror(target)
            target.rows("PRAGMA journal_mode = WAL")

    def _continue(self, destination: Path) -> None:
        with closing(Store(destination / FILE)) as target:
            mine, other = self.source.meta(), target.meta()
            if mine.index_id != other.index_id:
                raise InputError(
                    f"{destination} is not a backup of {self.folder}, but another index; choose another folder."
                )
            same = other._replace(requires=mine.requires) == mine and target.active_info() == self.source.active_info()
            if other.generation > mine.generation or (other.generation == mine.generation and not same):
                raise InputError(
                    f"{destination} holds changes that {self.folder} does not have; restore it, or choose another folder."
                )
            self._copy_model(destination)
            if not same:
                self._mirror(target)
            (free,), (pages,) = (target.rows(f"PRAGMA {name}")[0] for name in ("freelist_count", "page_count"))
            if free > pages // 2:
                target.vacuum()
            drop_unused_models(LocalIndex(destination, target))

    def _mirror(self, target: Store) -> None:
        """Give a file the content of the source in one transaction."""
        meta = self.source.meta()
        with target.writing(meta.generation):
            numbers = {name: getattr(meta, name) for name in ("active_version", "next_id", "next_version", "next_text")}
            target.set_meta(**numbers)
            self._copy_sources(target)
            item_ids = self._copy_items(target, meta.next_id)
            self._copy_blocks(target, meta.active_version, item_ids)
            self._copy_arrays(target, item_ids)
            self._copy_texts(target)
            info = self.source.version_info(meta.active_version)
            if len(item_ids) != info.num_codes:
                self.source.raise_damaged(f"it has {len(item_ids):,} items, but {info.num_codes:,} codes")
        self.progress("copying items", 1.0)

    def _copy_blocks(self, target: Store, version: int, item_ids: UInt32s) -> None:
        """Copy the blocks that changed and the description of the version; delete all others."""
        now = blocks.list_blocks(self.source, version)
        statement = "SELECT number, info_checksum FROM blocks WHERE version = ?"
        wanted, held = (set(store.rows(statement, version)) for store in (self.source, target))
        before = target.value("SELECT count(*) FROM blocks")
        target.drop_versions(version, version)
        target.run_many("DELETE FROM blocks WHERE version = ? AND number = ?", ((version, old) for old, _ in held - wanted))
        self.counts.blocks_removed = before - len(held & wanted)
        for number in sorted(number for number, _ in wanted - held):
            block = blocks.read_block(self.source, version, number)  # compares its checksum
            if not np.isin(block.item_ids, item_ids, assume_unique=True).all():
                self.source.raise_damaged(f"block {number} has codes without items")
            statement = f"SELECT {_BLOCK_COLUMNS} FROM blocks WHERE version = ? AND number = ?"
            self._insert(target, "blocks", _BLOCK_COLUMNS, self.source.rows(statement, version, number)[0])
            self.counts.blocks_copied += 1
        self.source.centroids(version)  # compares their checksum
        target.run("DELETE FROM versions")
        row = self.source.rows(f"SELECT {_VERSION_COLUMNS} FROM versions WHERE number = ?", version)[0]
        self._insert(target, "versions", _VERSION_COLUMNS, row)
        if blocks.list_blocks(target, version) != now:
            target.raise_damaged("its blocks differ from those of the index")

    def _copy_arrays(self, target: Store, item_ids: UInt32s) -> None:
        """Copy the descriptions of arrays and the blocks that changed, and delete all others."""
        now, before = item_arrays.list_arrays(self.source), item_arrays.list_arrays(target)
        statement = "SELECT array, generation, number, info_checksum FROM array_blocks"
        wanted, held = (set(store.rows(statement)) for store in (self.source, target))
        for name, info in before.items():
            if name not in now or info.generation != now[name].generation:
                item_arrays.delete_array(target, name)
        for name, _, number, _ in held - wanted:  # numbers are unique over all arrays: the old ones go first
            item_arrays.delete_array_block(target, name, number)
        for name, info in now.items():
            item_arrays.define_array(target, name, info)
        for name, _, number, _ in sorted(wanted - held):
            block = next(item_arrays.read_array_blocks(self.source, name, [number]))  # compares its checksums
            if not np.isin(block.item_ids, item_ids, assume_unique=True).all():
                self.source.raise_damaged(f"block {number} of the array {name!r} has rows without items")
            item_arrays.write_array_block(target, name, number, block)
            self.counts.array_blocks_copied += 1
        if item_arrays.list_arrays(target) != now:
            target.raise_damaged("its arrays differ from those of the index")

    def _copy_texts(self, target: Store) -> None:
        """Copy the texts of columns that are new, and delete those that are gone."""
        wanted, held = (set(store.rows("SELECT code, checksum FROM texts")) for store in (self.source, target))
        target.run_many("DELETE FROM texts WHERE code = ?", ((code,) for code, _ in held - wanted))
        texts.insert_texts(target, texts.find_texts(self.source, (code for code, _ in wanted - held)).items())

    def _copy_sources(self, target: Store) -> None:
        target.run("DELETE FROM sources")
        for number, row in items.list_sources(self.source).items():
            items.insert_source(target, number, row)

    def _copy_items(self, target: Store, next_id: int) -> UInt32s:
        """Copy the items that are new and delete those that are gone; return the ids of all."""
        statement = "SELECT item_id, checksum FROM items WHERE item_id BETWEEN ? AND ?"
        ids, new = [np.zeros(0, np.uint32)], {}
        end = max(next_id, 1 + (target.value("SELECT max(item_id) FROM items") or 0))
        for first in range(0, end, _IDS_PER_STEP):
            wanted, held = (set(store.rows(statement, first, first + _IDS_PER_STEP - 1)) for store in (self.source, target))
            gone = [item_id for item_id, _ in held - wanted]
            target.run_many("DELETE FROM items WHERE item_id = ?", ((item_id,) for item_id in gone))
            self.counts.items_removed += len(gone)
            ids.append(np.sort(np.array([item_id for item_id, _ in wanted], np.uint32)))
            if wanted - held:
                new[first] = np.array([item_id for item_id, _ in wanted - held], np.uint32)
        for step, (first, item_ids) in enumerate(new.items()):  # after all deletions: keys are unique
            self.progress("copying items", step / len(new))
            self._insert_items(target, first, set(item_ids.tolist()))
        return np.concatenate(ids)

    def _insert_items(self, target: Store, first: int, item_ids: set[int]) -> None:
        statement = f"SELECT {items.COLUMNS} FROM items WHERE item_id BETWEEN ? AND ? ORDER BY item_id"
        rows = self.source.rows(statement, first, first + _IDS_PER_STEP - 1)
        chosen = [items.checked_row(self.source, row) for row in rows if row[0] in item_ids]
        items.insert_rows(target, chosen)
        self.counts.items_copied += len(chosen)

    def _insert(self, target: Store, table: str, columns: str, row: tuple[Any, ...]) -> None:
        target.run(f"INSERT INTO {table}({columns}) VALUES ({', '.join('?' * len(row))})", *row)

    def _copy_model(self, destination: Path) -> None:
        """Copy the model of the active version, unless the destination has an intact copy; renew its calibration."""
        version = self.source.active_version
        info = self.source.version_info(version)
        if info.model is None:
            return
        origin, target = model_dir(self.folder, info.model), model_dir(destination, info.model)
        try:
            if target.is_dir() and _is_intact(target, info):
                _renew_calibration(origin, target, info.bits)
                return
            with atomic_folder(target) as temporary:
                shutil.copytree(origin, temporary, dirs_exist_ok=True)
                check_model_copy(temporary, info)
                Calibration.load(temporary, info.bits)
            self.counts.models_copied += 1
        except (InputError, OSError) as error:
            reason = str(error) if isinstance(error, InputError) else f"{error.strerror}."
            raise _ModelError(f"The model in {origin} cannot be copied: {reason}", version) from error


def check_model_copy(folder: Path, info: VersionInfo) -> None:
    """Raise an InputError unless a folder holds the model of a version, complete and as it was written."""
    check_model(folder, info)
    check_files(folder, read_config(folder)["sha256"])


def _is_intact(folder: Path, info: VersionInfo) -> bool:
    try:
        check_model_copy(folder, info)
    except (InputError, OSError):
        return False
    return True


def _renew_calibration(origin: Path, target: Path, bits: int) -> None:
    """Copy the calibration of a model if it changed."""
    Calibration.load(origin, bits)  # raises if it is damaged
    new, old = (path.read_bytes() if path.is_file() else None for path in (origin / CALIBRATION, target / CALIBRATION))
    if new is None:
        (target / CALIBRATION).unlink(missing_ok=True)
    elif new != old:
        with atomic_write(target / CALIBRATION) as temporary:
            temporary.write_bytes(new)


def check_apart(one: Path, other: Path) -> None:
    """Raise an InputError unless two folders are separate, so that one can be copied to the other."""
    first, second = one.resolve(), other.resolve()
    if first == second or first in second.parents or second in first.parents:
        raise InputError(f"{one} and {other} must be separate folders.")
    if other.is_file():
        raise InputError(f"{other} is a file; choose a folder.")


def is_used(folder: Path) -> bool:
    """Return whether a folder exists and holds anything."""
    return folder.is_dir() and any(folder.iterdir())


def _remove_leftovers(destination: Path) -> None:
    """Remove unfinished folders of processes that were killed: the lock of each ended with its process."""
    for folder in destination.parent.glob(f".{escape(destination.name)}-*"):
        if (folder / UPGRADE_LOCK).is_file():
            with suppress(InputError), try_lock(folder / UPGRADE_LOCK) as stopped:
                if stopped:
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _write_lock(path: Path) -> Iterator[None]:
    """Keep others from writing to an index that is replaced, so that no acknowledged write goes to the old file."""
    if not path.is_file():
        yield
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=WAIT_SECONDS, isolation_level=None)
    with closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                raise translate_error(error, path) from error
        yield  # a damaged file cannot be locked, nor written
