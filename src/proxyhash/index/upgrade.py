"""Upgrade of a local index to a new model, while it is searched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.index.item_ids import Int64s, UInt32s
from proxyhash.index.local import blocks, item_arrays, items, transactions
from proxyhash.index.local.blocks import CODES_PER_BLOCK, Block
from proxyhash.index.local.index import UPGRADE_LOCK, LocalIndex
from proxyhash.index.local.items import Item
from proxyhash.index.maintenance import drop_unused_models
from proxyhash.index.model_store import copy_model, load_hasher, model_dir
from proxyhash.index.queries import Features
from proxyhash.index.refinement.storage import (
    add_features,
    create_refinement,
    drop_unused_refinements,
    fit_if_due,
    fit_on_sample,
    read_refinement,
)
from proxyhash.models.storage import config_sha256
from proxyhash.utils.errors import InputError
from proxyhash.utils.locks import try_lock

if TYPE_CHECKING:
    from proxyhash.data import SkippedItems
    from proxyhash.models.encoder import ModelEncoder


def upgrade(
    index: LocalIndex,
    encoder: "ModelEncoder",
    skipped: "SkippedItems",
    *,
    drop_unreadable: bool = False,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Encode all items with a new model, and return how many have new codes; see `Upgrade`."""
    with try_lock(index.folder / UPGRADE_LOCK) as locked:
        if not locked:
            raise InputError(f"Another process is upgrading {index.folder}; wait until it is done, or stop it.")
        kind = upgrade_class(index, encoder)
        moved = kind(index, encoder, skipped, drop_unreadable, on_progress).run()
        transactions.recluster_if_grown(index.store, None, index.proxy_codes)
        drop_unused_models(index)
    return moved


def upgrade_class(index: LocalIndex, encoder: "ModelEncoder") -> "type[Upgrade]":
    """Return how the items of an index are encoded again: as images or as vectors."""
    takes_vectors = encoder.width is not None
    if index.model is not None and takes_vectors != (index.width is not None):
        had, new = ("images", "vectors") if takes_vectors else ("vectors", "images")
        raise InputError(f"{index.folder} is an index of {had}, and the new model takes {new}; make another index.")
    if not takes_vectors:
        return Upgrade
    from proxyhash.index.vector_upgrade import VectorUpgrade

    return VectorUpgrade


class EncodedItems(NamedTuple):
    """Items that could be encoded: their indices (n,), codes (n, bytes), and features (n, num_features) if wanted."""

    kept: Int64s
    codes: Packed
    features: Features | None


@dataclass
class Upgrade:
    """Encodes every item with a new model into a new version of the codes, then activates it in one transaction.

    It may be stopped and run again: codes that were written stay. An item is never changed, only replaced by one with
    another id, so that the ids tell which items have no new code yet, whatever is added, removed or compacted meanwhile.
    """

    index: LocalIndex
    encoder: "ModelEncoder"
    skipped: "SkippedItems"
    drop_unreadable: bool = False
    on_progress: Callable[[int, int], None] = lambda *_: None
    unreadable: set[int] = field(default_factory=set)  # ids of items that are dropped
    refines: bool = False  # whether features are wanted

    originals: ClassVar[str] = "images"

    def run(self) -> int:
        """Encode and activate; return how many items have new codes."""
        store = self.index.store
        self._check_originals()
        name = copy_model(self.encoder, self.index.folder)
        if name == self.index.model:
            raise InputError("The index was made with this very model; there is nothing to upgrade.")
        with store.writing():
            sha256 = config_sha256(model_dir(self.index.folder, name))
            version = store.start_version(self.encoder.bits, name, sha256)
            self._start_refinement(version)
        while True:
            missing = self._missing(version)
            for first in range(0, len(missing), CODES_PER_BLOCK):
                self._encode(version, missing[first : first + CODES_PER_BLOCK])
            fit_if_due(store, version)
            with store.writing() as generation:
                self._check_version(version)
                if not len(self._missing(version)):
                    return self._activate(version, generation)

    def _start_refinement(self, version: int) -> None:
        """Give the new version a refinement of the kind that the active one has; in the transaction of the caller."""
        store, refinement = self.index.store, self.index.refinement
        drop_unused_refinements(store)
        self.refines = refinement is not None
        if refinement is not None and read_refinement(store, version) is None:
            create_refinement(store, version, refinement.kind)

    def _check_originals(self) -> None:
        """Raise an InputError if there is an item that cannot be encoded again, before anything is written."""
        row = self.index.store.rows("SELECT key FROM items WHERE source IS NULL LIMIT 1")
        if row:
            raise InputError(f"The code of {row[0][0]} was imported: there is no image to encode again.")

    def _check_version(self, version: int) -> None:
        """Raise unless the version is still being written; in the transaction of the caller."""
        store = self.index.store
        if version not in store.list_versions() or version == store.active_version:
            raise InputError(f"Another process took over the upgrade of {self.index.folder}; nothing is lost.")

    def _missing(self, version: int) -> UInt32s:
        """Return the ids of items that have no code of the new version, ascending."""
        store = self.index.store
        with store.reading():
            self._check_version(version)
            active, new = blocks.coded_ids(store, store.active_version), blocks.coded_ids(store, version)
        missing = np.setdiff1d(active, new)
        return missing[~np.isin(missing, list(self.unreadable))]

    def _encode(self, version: int, item_ids: UInt32s) -> None:
        """Write the new codes of some items."""
        store = self.index.store
        with store.reading():
            found = items.items_by_id(store, item_ids)
        item_ids = item_ids[np.isin(item_ids, list(found))]  # others were removed meanwhile
        kept, codes, features = self.encode_items([found[int(item_id)] for item_id in item_ids])
        unreadable = np.setdiff1d(np.arange(len(item_ids)), kept)
        if len(unreadable) and not self.drop_unreadable:
            key = found[int(item_ids[unreadable[0]])].key
            raise InputError(
                f"{len(unreadable):,} {self.originals} cannot be read any more, {key} among them; --drop-unreadable removes "
                "them, and what was encoded so far is kept."
            )
        self.unreadable |= {int(item_id) for item_id in item_ids[unreadable]}
        if features is not None:
            fit_on_sample(store, version, features)
        with store.writing() as generation:
            self._check_version(version)
            block = Block(item_ids[kept], np.zeros(len(kept), np.uint16), codes)
            blocks.merge_codes(store, version, block, generation)
            if features is not None:
                add_features(store, version, item_ids[kept], features)
        self.on_progress(blocks.count_codes(store, version), len(self.index))

    def encode_items(self, found: Sequence[Item]) -> EncodedItems:
        """Return which items could be encoded, their codes, and their features if there is a refinement."""
        from proxyhash.data import FileImages

        images = FileImages(Path(), [str(item.path) for item in found])
        if not self.refines:
            kept, embeddings = self.encoder.embed(images, on_error="skip", skipped=self.skipped)
            return EncodedItems(kept, self._pack(embeddings), None)
        batches = list(self._feature_encoder().output_batches(images, self.skipped))
        if not batches:
            return EncodedItems(np.zeros(0, np.int64), self._pack(np.zeros((0, 0), np.float32)), None)
        embeddings, features = (np.concatenate(each) for each in zip(*(outputs for _, outputs in batches), strict=True))
        return EncodedItems(np.concatenate([indices for indices, _ in batches]), self._pack(embeddings), features)

    def _pack(self, embeddings: NDArray[np.float32]) -> Packed:
        return pack(binarize(embeddings)) if len(embeddings) else np.zeros((0, (self.encoder.bits + 7) // 8), np.uint8)

    def _feature_encoder(self) -> "ModelEncoder":
        """Return the new model as one that gives features: by torch, if its ONNX file does not."""
        if not self.encoder.has_features:
            self.encoder = load_hasher(self.encoder.folder or self.encoder)
        return self.encoder

    def _activate(self, version: int, generation: int) -> int:
        """Make the new version the active one, inside a transaction; return the number of its codes.

        Items without a new code are deleted, and new codes of items that were removed meanwhile.
        """
        store = self.index.store
        stored, coded = items.all_ids(store), blocks.coded_ids(store, version)
        items.delete_items(store, np.setdiff1d(stored, coded))
        item_arrays.remove_rows(store, np.setdiff1d(stored, coded))
        blocks.remove_codes(store, version, np.setdiff1d(coded, stored), generation)
        store.set_meta(active_version=version)
        store.drop_versions(version, version)
        drop_unused_refinements(store)
        return blocks.count_codes(store, version)
