"""Salvage of a damaged local index: a new index with every item that is intact, and a list of those that are lost."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from proxyhash.codes.bits import Packed
from proxyhash.index.backup import check_apart, check_model_copy, is_used
from proxyhash.index.calibration import Calibration
from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import blocks, columns, item_arrays, items, texts, transactions
from proxyhash.index.local.blocks import Block
from proxyhash.index.local.commits import CommitCount, read_commits
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.intact_rows import INSERT_ITEM, IntactRows, find_old_rows, is_legacy, read_by_sql, read_pages
from proxyhash.index.local.item_arrays import ArrayInfo
from proxyhash.index.local.items import ItemRow
from proxyhash.index.local.raw_pages import RawPages
from proxyhash.index.local.schema import VECTORS
from proxyhash.index.local.store import Store, VersionInfo
from proxyhash.index.maintenance import verify
from proxyhash.index.model_store import MODELS_DIR, model_dir, proxy_codes
from proxyhash.index.refinement.storage import name_in_copy
from proxyhash.models.storage import CALIBRATION, config_sha256, fingerprint, read_config
from proxyhash.utils.atomic_io import atomic_folder
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

_ITEMS_PER_TRANSACTION = 65_536
_ROWS_PER_STEP = 4096  # of an array
_BYTES_PER_READ = 1 << 20
_BYTES_PER_SECTOR = 512  # left out where a disk cannot read them


@dataclass(frozen=True)
class LostItem:
    """An item that could not be saved; its key is None if that is lost too."""

    item_id: int
    key: str | None
    reason: str


@dataclass(frozen=True)
class SalvageReport:
    """Result of a salvage.

    Attributes
    ----------
    saved
        Number of items in the new index.
    lost
        Items of which only a part is intact.
    unknown
        Number of items of which nothing is left.
    lost_commits
        Number of acknowledged commits that the files do not hold any more; None if that cannot be told.
    notes
        A sentence for everything else that is lost.
    """

    saved: int
    lost: tuple[LostItem, ...]
    unknown: int
    lost_commits: int | None
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Return whether everything was saved."""
        return not (self.lost or self.unknown or self.lost_commits or self.notes)

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"complete": self.complete, **asdict(self)}


class _Codes(NamedTuple):
    """Item ids (n,), ascending, and their codes (n, bytes)."""

    item_ids: UInt32s
    codes: Packed


class _Model(NamedTuple):
    """The model of the new index: its name and folder, None without one, and the length of its codes."""

    name: str | None
    folder: Path | None
    bits: int


def salvage(folder: Path, new: Path, progress: Progress = no_progress) -> SalvageReport:
    """Extract every intact item of a damaged index to a new one. The damaged index is not changed.

    An item is saved if its row and its code match their checksums. Pages that SQLite cannot reach are read without it.

    Parameters
    ----------
    folder
        The damaged index, of this release or of 0.1. Nobody should write to it meanwhile, and this process must not have it
        open: reading the file beside SQLite drops the locks of the process.
    new
        The folder of the new index, which has the same item ids and model.
    progress
        Called with the share that is done.

    Raises
    ------
    InputError
        If the new folder exists, or nothing is intact.
    """
    check_apart(folder, new)
    if is_used(new):
        raise InputError(f"{new} exists; choose another folder.")
    if not (folder / FILE).is_file():
        raise InputError(f"There is no index at {folder}: it has no {FILE}.")
    new.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=new.parent, prefix=f".{new.name}-") as temporary:
        for ending in ("", "-wal"):
            _copy_readable(folder / f"{FILE}{ending}", Path(temporary) / f"{FILE}{ending}")
        notes: list[str] = []
        counter = _read_counter(folder, notes)
        progress("reading the index", 0.0)
        rows, pages = _read_rows(Path(temporary) / FILE, counter)
        progress("reading the index", 1.0)
        with closing(rows.items):
            return _Salvage(folder, rows, pages, counter, notes, progress).run(new)


def _copy_readable(path: Path, copy: Path) -> None:
    """Copy what can be read of a file, with zeros where the disk fails."""
    if not path.is_file():
        return
    try:
        with path.open("rb", buffering=0) as source, copy.open("wb") as target:
            size = os.fstat(source.fileno()).st_size
            for first in range(0, size, _BYTES_PER_READ):
                target.write(_read_at(source.fileno(), first, min(_BYTES_PER_READ, size - first)))
    except OSError as error:
        raise InputError(f"Cannot copy {path} to {copy.parent}: {error.strerror}.") from error


def _read_at(handle: int, first: int, size: int) -> bytes:
    try:
        if hasattr(os, "pread"):
            return os.pread(handle, size, first)
        os.lseek(handle, first, os.SEEK_SET)  # Windows
        return os.read(handle, size)
    except OSError:
        if size <= _BYTES_PER_SECTOR:
            return bytes(size)
        half = -(-size // 2 // _BYTES_PER_SECTOR) * _BYTES_PER_SECTOR
        return _read_at(handle, first, half) + (_read_at(handle, first + half, size - half) if size > half else b"")


def _read_counter(folder: Path, notes: list[str]) -> CommitCount | None:
    try:
        return read_commits(folder)
    except InputError:
        notes.append("The counter of commits is damaged, so that lost commits cannot be counted.")
        return None


def _read_rows(path: Path, counter: CommitCount | None) -> tuple[IntactRows, RawPages]:
    """Return the intact rows: those that SQLite reads, and if anything is missing, those of all pages."""
    pages = RawPages(path)
    legacy = is_legacy(pages)
    rows, ok = read_by_sql(path, legacy=legacy)
    lost = counter is not None and counter.generation > rows.meta.get("generation", 0)
    if ok and not lost and rows.is_complete():
        return rows, pages
    if lost:  # pages in the log may be newer than what SQLite reads, which may hold items that were removed since
        rows.items.close()
        rows = IntactRows(legacy)
    read_pages(pages, rows)
    return rows, pages


@dataclass
class _Salvage:
    """Writes a new index from intact rows."""

    folder: Path
    rows: IntactRows
    pages: RawPages
    counter: CommitCount | None
    notes: list[str]
    progress: Progress

    def run(self, new: Path) -> SalvageReport:
        version = self.rows.active_version()
        info = None if version is None else self.rows.versions.get(version)
        found = self._codes(version)
        item_ids = self._item_ids()
        if version is not None:
            found, item_ids = self._add_old_rows(version, found, item_ids)
        model = self._find_model(info, found)
        saved = np.intersect1d(found.item_ids, item_ids, assume_unique=True)
        with atomic_folder(new) as temporary:
            self._write(temporary, model, _Codes(saved, found.codes[np.isin(found.item_ids, saved)]))
        lost = (*self._lost(np.setdiff1d(item_ids, saved), found), *self._lost(np.setdiff1d(found.item_ids, saved), found))
        expected = 0 if info is None or self.rows.legacy else info.num_codes
        unknown = max(0, expected - len(saved) - len(lost))
        return SalvageReport(len(saved), lost, unknown, self._lost_commits(), tuple(self.notes))

    def _codes(self, version: int | None) -> _Codes:
        """Return the codes of a version; of an item that is in two blocks, that of the newer one."""
        chosen = [block for (number, _), block in self.rows.blocks.items() if number == version]
        widths = [block.codes.shape[1] for block in chosen]
        width = max(set(widths), key=widths.count, default=0)
        chosen = sorted((block for block in chosen if block.codes.shape[1] == width), key=lambda block: -block.generation)
        item_ids = np.concatenate([np.zeros(0, np.uint32), *(block.item_ids for block in chosen)])
        codes = np.concatenate([np.zeros((0, width), np.uint8), *(block.codes for block in chosen)])
        found, first = np.unique(item_ids, return_index=True)
        return _Codes(found, codes[first])

    def _item_ids(self) -> UInt32s:
        """Return the ids of all items; of two with the same key, the older one was replaced."""
        statement = "DELETE FROM items WHERE item_id NOT IN (SELECT max(item_id) FROM items GROUP BY key)"
        self.rows.items.execute(statement)
        rows = self.rows.items.execute("SELECT item_id FROM items ORDER BY item_id")
        return np.fromiter((item_id for (item_id,) in rows), np.uint32)

    def _add_old_rows(self, version: int, found: _Codes, item_ids: UInt32s) -> tuple[_Codes, UInt32s]:
        """Look for what is missing in pages that are not used any more, if it is known what was in use."""
        no_row = np.setdiff1d(found.item_ids, item_ids) if self.rows.has_all_blocks(version) else np.zeros(0, np.uint32)
        no_code = np.setdiff1d(item_ids, found.item_ids) if self.pages.header is not None else np.zeros(0, np.uint32)
        if not len(no_row) and not len(no_code):
            return found, item_ids
        old = [found]
        for item, block in find_old_rows(self.pages, version, set(no_row.tolist()), no_code, legacy=self.rows.legacy):
            if item is not None:
                self.rows.items.execute(INSERT_ITEM, item)
            elif block is not None and block.codes.shape[1] == found.codes.shape[1]:
                old.append(_Codes(block.item_ids, block.codes))
        ids, first = np.unique(np.concatenate([codes.item_ids for codes in old]), return_index=True)
        return _Codes(ids, np.concatenate([codes.codes for codes in old])[first]), self._item_ids()

    def _lost(self, item_ids: UInt32s, found: _Codes) -> Iterator[LostItem]:
        coded = set(np.intersect1d(item_ids, found.item_ids).tolist())
        for item_id in item_ids.tolist():
            row = self.rows.items.execute("SELECT key FROM items WHERE item_id = ?", (item_id,)).fetchone()
            reason = "its key and labels are damaged" if item_id in coded else "its code is damaged"
            yield LostItem(item_id, None if row is None else row[0], reason)

    def _lost_commits(self) -> int | None:
        if self.counter is None or not self.rows.meta:
            return None
        return max(0, self.counter.generation - int(self.rows.meta["generation"]))

    def _find_model(self, info: VersionInfo | None, found: _Codes) -> _Model:
        """Return the model of the codes, if its copy is intact."""
        width = found.codes.shape[1]
        if info is None:
            return self._guess_model(width)
        if info.model is None:
            return _Model(None, None, info.bits)
        folder = model_dir(self.folder, info.model)
        try:
            check_model_copy(folder, info)
        except (InputError, OSError, KeyError, TypeError) as error:
            self.notes.append(f"The copy of the model is damaged, so that the new index has codes only: {error}")
            return _Model(None, None, info.bits)
        return _Model(info.model, folder, info.bits)

    def _guess_model(self, width: int) -> _Model:
        """Return the only intact model that fits the codes, if the description of their version is lost."""
        if not width:
            raise InputError(f"Nothing in {self.folder / FILE} is intact.")
        candidates = []
        for folder in sorted((self.folder / MODELS_DIR).glob("*")):
            try:
                bits = int(read_config(folder)["head"]["bits"])
                check_model_copy(folder, VersionInfo(bits, folder.name, 0))
            except (InputError, OSError, KeyError, TypeError, ValueError):
                continue
            if (bits + 7) // 8 == width:
                candidates.append(_Model(fingerprint(folder), folder, bits))
        if len(candidates) == 1:
            return candidates[0]
        self.notes.append(f"The description of the codes is lost; they are taken as {8 * width} bits without a model.")
        return _Model(None, None, 8 * width)

    def _write(self, folder: Path, model: _Model, codes: _Codes) -> None:
        """Write the new index and verify it."""
        sha256 = self._copy_model(folder, model)
        with closing(Store.create(folder / FILE, model.bits, model.name, sha256)) as store:
            rows = self._rows(codes.item_ids)
            for first in range(0, len(codes.item_ids), _ITEMS_PER_TRANSACTION):
                self.progress("writing the new index", first / len(codes.item_ids))
                part = slice(first, first + _ITEMS_PER_TRANSACTION)
                block = Block(codes.item_ids[part], np.zeros(len(codes.item_ids[part]), np.uint16), codes.codes[part])
                with store.writing() as generation:
                    if first == 0:
                        self._write_sources(store)
                    items.insert_rows(store, islice(rows, len(block)))
                    blocks.append_codes(store, 1, block, generation)
                    next_id = max(int(self.rows.meta.get("next_id", 0)), int(codes.item_ids[-1]) + 1)
                    store.set_meta(next_id=next_id)
            for name, info in self.rows.array_infos().items():
                new_name = name_in_copy(name, self.rows.active_version(), 1)
                if new_name is not None:
                    self._write_array(store, name, new_name, info, codes.item_ids)
            self._write_texts(store)
            nothing = np.zeros((0, (model.bits + 7) // 8), np.uint8)
            transactions.recluster_if_grown(store, nothing, lambda: proxy_codes(folder, model.name))
            report = verify(LocalIndex(folder, store))
            if not report.ok:
                raise InputError(f"The new index would not be intact: {report.problems[0]}")
        self.progress("writing the new index", 1.0)

    def _copy_model(self, folder: Path, model: _Model) -> str | None:
        """Copy the model, without a damaged calibration; return the SHA-256 of its configuration."""
        if model.name is None or model.folder is None:
            return None
        target = model_dir(folder, model.name)
        shutil.copytree(model.folder, target)
        try:
            Calibration.load(target, model.bits)
        except InputError as error:
            (target / CALIBRATION).unlink(missing_ok=True)
            self.notes.append(f"The calibration of the model is lost: {error}")
        return config_sha256(target)

    def _write_sources(self, store: Store) -> None:
        for number, row in sorted(self.rows.sources.items()):
            items.insert_source(store, number, row)

    def _write_array(self, store: Store, name: str, new_name: str, info: ArrayInfo, saved: UInt32s) -> None:
        """Write the rows of saved items in an array. A row that is lost costs no item: its code is intact."""
        with store.writing():
            item_arrays.set_settings(store, new_name, info.settings)
        for first in range(0, len(saved), _ROWS_PER_STEP):
            block = self.rows.find_rows(name, info.generation, saved[first : first + _ROWS_PER_STEP])
            if block is not None:
                with store.writing():
                    item_arrays.append_rows(store, new_name, block.item_ids, block.rows)
        lost = info.num_items - item_arrays.count_rows(store, new_name)
        if lost > 0:
            what = "kept vectors" if name == VECTORS else f"rows of the array {name!r}"
            self.notes.append(f"{lost:,} {what} are lost; their items are not.")

    def _write_texts(self, store: Store) -> None:
        """Write the texts of columns; where the text of a code is lost, the item has no value."""
        found = self.rows.texts
        with store.writing():
            texts.insert_texts(store, sorted(found.items()))
            store.set_meta(next_text=max(int(self.rows.meta.get("next_text", 0)), 1 + max(found, default=-1)))
            lost = columns.drop_lost_texts(store, np.array(sorted(found), np.uint32))
        if lost:
            self.notes.append(f"{lost:,} texts of items are lost; the items are not.")

    def _rows(self, item_ids: UInt32s) -> Iterator[ItemRow]:
        """Yield the rows of items; an item whose folder is lost has none."""
        without_folder = 0
        chosen = iter(item_ids.tolist())
        wanted = next(chosen, None)
        for row in self.rows.items.execute("SELECT * FROM items ORDER BY item_id"):
            if row[0] != wanted:
                continue
            wanted = next(chosen, None)
            known = row[3] is None or row[3] in self.rows.sources
            without_folder += not known
            if wanted is None and without_folder:  # before the last row, after which nobody asks for more
                self.notes.append(f"The folder of {without_folder:,} items is lost; their keys and labels are not.")
            yield ItemRow(*(row if known else (*row[:3], None, None, None)))
