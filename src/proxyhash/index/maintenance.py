"""Compacting an index, and moving it to a new model while it is searched."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.index.clusters.centroids import WORTH_IT
from proxyhash.index.local import blocks, items, transactions
from proxyhash.index.local.blocks import BLOCK, Block, Place
from proxyhash.index.local.index import EmbeddedIndex
from proxyhash.index.local.store import Store
from proxyhash.index.model_store import FOLDER, keep_copy, proxy_codes
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.data import Problems
    from proxyhash.models.hasher import Hasher


def compact(index: EmbeddedIndex) -> tuple[int, int]:
    """Fill the blocks, choose centres anew, drop what is unused; return the bytes on disk before and after."""
    before = index.bytes_on_disk()
    store = index.store
    with store.writing() as generation:
        edition = store.fact("live")
        _drop_editions(store, keep=edition)
        _fill_blocks(store, edition, generation)
        store.run("DELETE FROM sources WHERE number NOT IN (SELECT DISTINCT source FROM items WHERE source IS NOT NULL)")
    count = store.value("SELECT coalesce(sum(count), 0) FROM blocks WHERE edition = ?", edition)
    if count >= WORTH_IT:
        transactions.regroup(store, np.zeros((0, (index.bits + 7) // 8), np.uint8), proxy_codes(index.folder, index.model))
    store.vacuum()
    _drop_models(index)
    return before, index.bytes_on_disk()


def _fill_blocks(store: Store, edition: int, generation: int) -> None:
    """Move codes forward so that every block but the last is full; one block at a time is in memory."""
    numbers = list(blocks.places(store, edition))
    waiting: list[Block] = []
    target = 0
    for number in numbers:
        waiting.append(blocks.read_block(store, edition, number))
        store.run("DELETE FROM blocks WHERE edition = ? AND number = ?", edition, number)
        while sum(map(len, waiting)) >= BLOCK:
            whole = blocks.joined(waiting)
            blocks.write_block(store, edition, target, whole.some(slice(0, BLOCK)), generation)
            waiting, target = [whole.some(slice(BLOCK, None))], target + 1
    if any(map(len, waiting)):
        blocks.write_block(store, edition, target, blocks.joined(waiting), generation)


@dataclass
class Upgrade:
    """Encodes every item with a new model beside the live codes, then makes these the live ones in one transaction.

    It may be stopped and run again: blocks that are done stay done. Items that are added meanwhile are encoded too.
    """

    index: EmbeddedIndex
    hasher: "Hasher"
    problems: "Problems"
    drop_unreadable: bool = False
    counted: Callable[[int, int], None] = lambda *_: None

    def run(self) -> int:
        """Do it, and return how many items have new codes."""
        store = self.index.store
        name = keep_copy(self.hasher, self.index.folder)
        if name == self.index.model:
            raise InputError("The index was made with this very model; there is nothing to upgrade.")
        self._refuse_without_files()
        edition = self._edition(name)
        while True:
            for number, place in self._lacking(edition):
                self._encode(edition, number, place)
            with store.writing() as generation:
                if not self._lacking(edition):
                    return self._go_live(edition, generation)

    def _refuse_without_files(self) -> None:
        row = self.index.store.rows("SELECT key FROM items WHERE source IS NULL LIMIT 1")
        if row:
            raise InputError(f"The code of {row[0][0]} was imported: there is no image to encode again.")

    def _edition(self, name: str) -> int:
        """Return the edition that is being made for this model: one that was begun before, or a new one."""
        store = self.index.store
        with store.writing():
            live = store.fact("live")
            begun = store.value("SELECT number FROM editions WHERE model = ? AND number > ?", name, live)
            _drop_editions(store, keep=live, also=begun)
            if begun is None:
                begun = live + 1
                store.run("INSERT INTO editions VALUES (?, ?, ?, NULL, 0)", begun, self.hasher.bits, name)
            return int(begun)

    def _lacking(self, edition: int) -> list[tuple[int, Place]]:
        """Return the blocks of the live edition whose twins are missing or were made from an older state."""
        live = blocks.places(self.index.store, self.index.store.fact("live"))
        twins = blocks.places(self.index.store, edition)
        return [
            (number, place) for number, place in live.items() if number not in twins or twins[number].version < place.version
        ]

    def _encode(self, edition: int, number: int, place: Place) -> None:
        """Make the twin of one block: the same positions, new codes."""
        store = self.index.store
        with store.reading():
            positions = blocks.read_block(store, store.fact("live"), number).positions
            known = items.items_at(store, positions)
        kept, codes = self._codes([known[int(position)].path for position in positions])
        lost = np.setdiff1d(np.arange(len(positions)), kept)
        if len(lost) and not self.drop_unreadable:
            key = known[int(positions[lost[0]])].key
            raise InputError(
                f"{len(lost):,} images cannot be read any more, {key} among them; --drop-unreadable removes them, "
                "and what was encoded so far is kept."
            )
        with store.writing():
            twin = Block(positions[kept], np.zeros(len(kept), np.uint16), codes)
            blocks.write_block(store, edition, number, twin, place.version, keep_empty=True)
        done = store.value("SELECT sum(count) FROM blocks WHERE edition = ?", edition)
        self.counted(done or 0, store.value("SELECT count(*) FROM items"))

    def _codes(self, paths: "list[Path | None]") -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Packed]:
        from proxyhash.data import FileImages

        images = FileImages(Path(), [str(path) for path in paths])
        kept, nu = self.hasher.embed_readable(images, self.problems)
        return kept, pack(binarize(nu)) if len(kept) else np.zeros((0, (self.hasher.bits + 7) // 8), np.uint8)

    def _go_live(self, edition: int, generation: int) -> int:
        """Make the new edition the live one: inside a transaction, so that nobody sees anything between."""
        store = self.index.store
        coded = [block.positions for block in blocks.read_blocks(store, edition, list(blocks.places(store, edition)))]
        positions = np.concatenate([np.zeros(0, np.uint32), *coded])
        stored = np.array([row[0] for row in store.rows("SELECT position FROM items")], np.uint32)
        items.delete(store, np.setdiff1d(stored, positions))
        store.run("DELETE FROM blocks WHERE edition = ? AND count = 0", edition)
        store.run("UPDATE blocks SET version = ? WHERE edition = ?", generation, edition)
        store.set_fact("live", edition)
        _drop_editions(store, keep=edition)
        return len(positions)


def upgrade(
    index: EmbeddedIndex,
    hasher: "Hasher",
    problems: "Problems",
    *,
    drop_unreadable: bool = False,
    counted: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Move an index to a new model and return how many items have new codes; see `Upgrade`."""
    moved = Upgrade(index, hasher, problems, drop_unreadable, counted).run()
    nothing = np.zeros((0, (index.bits + 7) // 8), np.uint8)
    transactions.regroup_if_grown(index.store, nothing, lambda: proxy_codes(index.folder, index.model))
    _drop_models(index)
    return moved


def _drop_editions(store: Store, *, keep: int, also: int | None = None) -> None:
    store.run("DELETE FROM blocks WHERE edition NOT IN (?, ?)", keep, keep if also is None else also)
    store.run("DELETE FROM editions WHERE number NOT IN (?, ?)", keep, keep if also is None else also)


def _drop_models(index: EmbeddedIndex) -> None:
    """Delete copies of models that no edition uses."""
    used = {name for (name,) in index.store.rows("SELECT model FROM editions")}
    folder = index.folder / FOLDER
    unused: Iterator[Path] = (child for child in (folder.iterdir() if folder.is_dir() else ()) if child.name not in used)
    for child in unused:
        shutil.rmtree(child, ignore_errors=True)
