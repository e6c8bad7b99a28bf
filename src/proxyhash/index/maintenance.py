"""Maintenance of a local index: verification, and compaction."""

import shutil
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proxyhash.index.calibration import Calibration
from proxyhash.index.clusters.centroids import MIN_CODES_FOR_CLUSTERS
from proxyhash.index.item_ids import Int64s, UInt32s
from proxyhash.index.local import blocks, columns, item_arrays, items, texts, transactions
from proxyhash.index.local.blocks import CODES_PER_BLOCK, Block
from proxyhash.index.local.index import UPGRADE_LOCK, LocalIndex
from proxyhash.index.local.store import Store
from proxyhash.index.model_store import MODELS_DIR, check_model, model_dir
from proxyhash.index.refinement.storage import drop_unused_refinements
from proxyhash.models.probe import check_onnx
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import try_lock


@dataclass(frozen=True)
class VerifyReport:
    """Result of a verification: the number of items and blocks, and a sentence for each problem."""

    items: int
    blocks: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Return whether there is no problem."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"ok": self.ok, **asdict(self)}


def verify(index: LocalIndex) -> VerifyReport:
    """Read the whole index, and check the file, its checksums, and that items and codes belong together."""
    store = index.store
    problems: list[str] = []
    count = num_blocks = 0
    with store.reading():
        for (message,) in store.rows("PRAGMA integrity_check(10)"):
            if message != "ok":
                problems.append(f"SQLite says: {message}.")
        try:
            meta, infos = store.meta(), store.list_versions()
            count, num_blocks = store.active_info().num_codes, store.active_info().num_blocks
            item_ids, wrong = items.verify_items(store)
            problems += wrong
            for version in infos:
                coded, wrong = _verify_codes(store, version)
                problems += wrong
                if version == meta.active_version:
                    problems += _mismatches(item_ids.astype(np.int64), coded, meta.next_id)
            wrong = _verify_arrays(store, item_ids)
            problems += wrong or texts.verify_texts(store, columns.used_texts(store))
            problems += _model_problems(index)
        except InputError as error:
            problems.append(str(error))
    return VerifyReport(count, num_blocks, tuple(dict.fromkeys(problems)))


def _verify_codes(store: Store, version: int) -> tuple[Int64s, list[str]]:
    """Read all codes of a version; return their item ids, and what is wrong."""
    coded, problems = [np.zeros(0, np.int64)], []
    try:
        centroids = store.centroids(version)
        numbers = list(blocks.list_blocks(store, version))
    except InputError as error:
        return coded[0], [str(error)]
    for number in numbers:
        try:
            block = blocks.read_block(store, version, number)
        except InputError as error:
            problems.append(str(error))
            continue
        coded.append(block.item_ids.astype(np.int64))
        if len(block) and block.clusters.max() >= (1 if centroids is None else len(centroids)):
            problems.append(f"Block {number} has a code in a cluster that does not exist.")
    return np.concatenate(coded), problems


def _verify_arrays(store: Store, item_ids: UInt32s) -> list[str]:
    """Read all arrays; return what is wrong."""
    arrays = item_arrays.list_arrays(store)
    problems = [problem for name in arrays for problem in _verify_array(store, name, item_ids)]
    if store.value("SELECT count(*) FROM array_blocks") != sum(info.num_blocks for info in arrays.values()):
        problems.append("There are blocks of an array that does not exist.")
    return problems


def _verify_array(store: Store, name: str, item_ids: UInt32s) -> list[str]:
    """Read all rows of an array; return what is wrong."""
    problems, found = [], [np.zeros(0, np.int64)]
    for number in item_arrays.list_array_blocks(store, name):
        try:
            block = next(item_arrays.read_array_blocks(store, name, [number]))
            found.append(block.item_ids.astype(np.int64))
        except InputError as error:
            problems.append(str(error))
    with_row = np.concatenate(found)
    if (np.diff(with_row) <= 0).any():
        problems.append(f"Item ids do not ascend from block to block of the array {name!r}.")
    if len(missing := np.setdiff1d(with_row, item_ids)):
        problems.append(f"{len(missing):,} rows of the array {name!r} have no item.")
    return problems


def _mismatches(item_ids: Int64s, coded: Int64s, next_id: int) -> list[str]:
    """Compare the ids of items with those of codes."""
    problems = []
    if (np.diff(coded) <= 0).any():
        problems.append("Item ids do not ascend from block to block.")
    if len(missing := np.setdiff1d(item_ids, coded)):
        problems.append(f"{len(missing):,} items have no code.")
    if len(missing := np.setdiff1d(coded, item_ids)):
        problems.append(f"{len(missing):,} codes have no item.")
    if len(item_ids) and item_ids[-1] >= next_id:
        problems.append("An item has an id that was never given.")
    return problems


def _model_problems(index: LocalIndex) -> list[str]:
    """Check the copies of models: of the active version, and of an upgrade that was started."""
    problems = []
    for info in index.store.list_versions().values():
        if info.model is None:
            continue
        folder = model_dir(index.folder, info.model)
        try:
            check_model(folder, info)
            check_onnx(folder)
            Calibration.load(folder, info.bits)
        except (InputError, OSError, KeyError) as error:
            problems.append(str(error))
    return problems


def compact(index: LocalIndex) -> tuple[int, int]:
    """Fill the blocks, choose centroids again, drop what is unused; return the bytes on disk before and after.

    An upgrade that is running goes on; one that was stopped is dropped.
    """
    before = index.bytes_on_disk()
    store = index.store
    with try_lock(index.folder / UPGRADE_LOCK) as no_upgrade:
        with store.writing() as generation:
            version = store.active_version
            if no_upgrade:
                store.drop_versions(version, version)
                drop_unused_refinements(store)
            _fill_blocks(store, version, generation)
            item_arrays.fill_blocks(store)
            texts.delete_unused(store, columns.used_texts(store))
            store.run("DELETE FROM sources WHERE number NOT IN (SELECT DISTINCT source FROM items WHERE source IS NOT NULL)")
        if store.active_info().num_codes >= MIN_CODES_FOR_CLUSTERS:
            transactions.recluster(store, None, index.proxy_codes)
        store.vacuum()
        if no_upgrade:
            drop_unused_models(index)
    return before, index.bytes_on_disk()


def _fill_blocks(store: Store, version: int, generation: int) -> None:
    """Move codes forward so that every block but the last is full; one block at a time is in memory."""
    waiting: list[Block] = []
    target = 0
    for number in list(blocks.list_blocks(store, version)):
        waiting.append(blocks.read_block(store, version, number))
        blocks.delete_block(store, version, number)
        while sum(map(len, waiting)) >= CODES_PER_BLOCK:
            joined = blocks.concat_blocks(waiting)
            blocks.write_block(store, version, target, joined.select(slice(0, CODES_PER_BLOCK)), generation)
            waiting, target = [joined.select(slice(CODES_PER_BLOCK, None))], target + 1
    if any(map(len, waiting)):
        blocks.write_block(store, version, target, blocks.concat_blocks(waiting), generation)


def drop_unused_models(index: LocalIndex) -> None:
    """Delete the copies of models that no version uses."""
    used = {info.model for info in index.store.list_versions().values()}
    folder = index.folder / MODELS_DIR
    for child in folder.iterdir() if folder.is_dir() else ():
        if child.name not in used:
            shutil.rmtree(child, ignore_errors=True)
