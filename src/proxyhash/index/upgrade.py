"""Upgrade of a local index to a new model, while it is searched."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local import blocks, items, transactions
from proxyhash.index.local.blocks import Block, BlockInfo
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import drop_unused_models
from proxyhash.index.model_store import copy_model
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import IndexNames as Sql

if TYPE_CHECKING:
    from proxyhash.data import SkippedItems
    from proxyhash.models.hasher import Hasher


def upgrade(
    index: LocalIndex,
    hasher: "Hasher",
    problems: "SkippedItems",
    *,
    drop_unreadable: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Encode all items with a new model, and return how many have new codes; see `Upgrade`."""
    moved = Upgrade(index, hasher, problems, drop_unreadable, on_progress).run()
    nothing = np.zeros((0, (index.bits + 7) // 8), np.uint8)
    transactions.recluster_if_grown(index.store, nothing, index.proxy_codes)
    drop_unused_models(index)
    return moved


@dataclass
class Upgrade:
    """Encodes every item with a new model into a new version of the codes, then activates it in one transaction.

    It may be stopped and run again: finished blocks stay. Items that are added meanwhile are encoded too.
    """

    index: LocalIndex
    hasher: "Hasher"
    problems: "SkippedItems"
    drop_unreadable: bool = False
    on_progress: Callable[[int, int], None] = lambda *_: None

    def run(self) -> int:
        """Encode and activate; return how many items have new codes."""
        store = self.index.store
        name = copy_model(self.hasher, self.index.folder)
        if name == self.index.model:
            raise InputError("The index was made with this very model; there is nothing to upgrade.")
        self._check_files()
        with store.writing():
            version = store.start_version(self.hasher.bits, name)
        while True:
            for number, info in self._outdated(version):
                self._encode(version, number, info)
            with store.writing() as generation:
                if not self._outdated(version):
                    return self._activate(version, generation)

    def _check_files(self) -> None:
        row = self.index.store.rows("SELECT key FROM items WHERE source IS NULL LIMIT 1")
        if row:
            raise InputError(f"The code of {row[0][0]} was imported: there is no image to encode again.")

    def _outdated(self, version: int) -> list[tuple[int, BlockInfo]]:
        """Return the blocks of the active version that have no counterpart in the new one, or changed since."""
        active = blocks.list_blocks(self.index.store, self.index.store.active_version)
        new = blocks.list_blocks(self.index.store, version)
        return [
            (number, info)
            for number, info in active.items()
            if number not in new or new[number].generation < info.generation
        ]

    def _encode(self, version: int, number: int, info: BlockInfo) -> None:
        """Write the counterpart of one block: the same item ids, new codes."""
        store = self.index.store
        with store.reading():
            item_ids = blocks.read_block(store, store.active_version, number).item_ids
            found = items.items_by_id(store, item_ids)
        kept, codes = self._codes([found[int(item_id)].path for item_id in item_ids])
        unreadable = np.setdiff1d(np.arange(len(item_ids)), kept)
        if len(unreadable) and not self.drop_unreadable:
            key = found[int(item_ids[unreadable[0]])].key
            raise InputError(
                f"{len(unreadable):,} images cannot be read any more, {key} among them; --drop-unreadable removes them, "
                "and what was encoded so far is kept."
            )
        with store.writing():
            block = Block(item_ids[kept], np.zeros(len(kept), np.uint16), codes)
            blocks.write_block(store, version, number, block, info.generation, keep_empty=True)
        self.on_progress(blocks.count_codes(store, version), len(self.index))

    def _codes(self, paths: "list[Path | None]") -> tuple[Int64s, Packed]:
        """Return which images could be read, and their codes."""
        from proxyhash.data import FileImages

        images = FileImages(Path(), [str(path) for path in paths])
        kept, embeddings = self.hasher.embed(images, on_error="skip", skipped=self.problems)
        return kept, pack(binarize(embeddings)) if len(kept) else np.zeros((0, (self.hasher.bits + 7) // 8), np.uint8)

    def _activate(self, version: int, generation: int) -> int:
        """Make the new version the active one, inside a transaction; return the number of its codes."""
        store = self.index.store
        coded = [block.item_ids for block in blocks.read_blocks(store, version, list(blocks.list_blocks(store, version)))]
        item_ids = np.concatenate([np.zeros(0, np.uint32), *coded])
        items.delete_items(store, np.setdiff1d(items.all_ids(store), item_ids))
        store.run(f"DELETE FROM blocks WHERE {Sql.VERSION} = ? AND count = 0", version)
        store.run(f"UPDATE blocks SET {Sql.GENERATION_WRITTEN} = ? WHERE {Sql.VERSION} = ?", generation, version)
        store.set_meta(Sql.ACTIVE_VERSION, version)
        store.drop_versions(version, version)
        return len(item_ids)
