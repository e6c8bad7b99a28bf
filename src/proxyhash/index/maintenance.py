"""Maintenance of a local index: verification, and compaction."""

import shutil
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proxyhash.index.clusters.centroids import MIN_CODES_FOR_CLUSTERS
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local import blocks, items, transactions
from proxyhash.index.local.blocks import CODES_PER_BLOCK, Block
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.store import Store
from proxyhash.index.model_store import MODELS_DIR, model_dir
from proxyhash.models.storage import check_files, fingerprint, read_config
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import IndexNames as Sql


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
    store, problems = index.store, []
    with store.reading():
        for (message,) in store.rows("PRAGMA integrity_check(10)"):
            if message != "ok":
                problems.append(f"SQLite says: {message}.")
        item_ids = items.all_ids(store).astype(np.int64)
        version = store.active_version
        infos = blocks.list_blocks(store, version)
        coded = [np.zeros(0, np.int64)]
        for number in infos:
            try:
                coded.append(blocks.read_block(store, version, number).item_ids.astype(np.int64))
            except InputError as error:
                problems.append(str(error))
        problems += _mismatches(item_ids, np.concatenate(coded), store.next_id)
        problems += _model_problems(index)
    return VerifyReport(len(item_ids), len(infos), tuple(problems))


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
    if index.model is None:
        return []
    folder = model_dir(index.folder, index.model)
    try:
        if fingerprint(folder) != index.model:
            return [f"The copy of the model in {folder} is another one."]
        check_files(folder, read_config(folder)["sha256"])
    except (InputError, OSError, KeyError) as error:
        return [str(error)]
    return []


def compact(index: LocalIndex) -> tuple[int, int]:
    """Fill the blocks, choose centroids again, drop what is unused; return the bytes on disk before and after."""
    before = index.bytes_on_disk()
    store = index.store
    with store.writing() as generation:
        version = store.active_version
        store.drop_versions(version, version)
        _fill_blocks(store, version, generation)
        store.run("DELETE FROM sources WHERE number NOT IN (SELECT DISTINCT source FROM items WHERE source IS NOT NULL)")
    if blocks.count_codes(store, version) >= MIN_CODES_FOR_CLUSTERS:
        transactions.recluster(store, np.zeros((0, (index.bits + 7) // 8), np.uint8), index.proxy_codes())
    store.vacuum()
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
    used = {name for (name,) in index.store.rows(f"SELECT model FROM {Sql.VERSIONS}")}
    folder = index.folder / MODELS_DIR
    for child in folder.iterdir() if folder.is_dir() else ():
        if child.name not in used:
            shutil.rmtree(child, ignore_errors=True)
