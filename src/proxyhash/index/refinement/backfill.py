"""Refinement of an index that has none, or another one: items are encoded again from their files or kept vectors."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import blocks, item_arrays, items
from proxyhash.index.local.blocks import CODES_PER_BLOCK
from proxyhash.index.local.index import UPGRADE_LOCK, LocalIndex
from proxyhash.index.refinement.refiner import Kind
from proxyhash.index.refinement.storage import (
    add_features,
    create_refinement,
    delete_refinement,
    features_name,
    fit_if_due,
    fit_on_sample,
    read_refinement,
    rows_name,
)
from proxyhash.index.upgrade import Upgrade, upgrade_class
from proxyhash.utils.errors import IndexChangedError, InputError
from proxyhash.utils.locks import try_lock

if TYPE_CHECKING:
    from proxyhash.data import SkippedItems


def refine_index(
    index: LocalIndex,
    kind: Kind | None,
    skipped: "SkippedItems",
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> int:
    """Give all items a refinement, and return how many have none because their originals cannot be read.

    It may be stopped and run again: rows that were written stay. Searches are refined with the rows that there are.

    Parameters
    ----------
    index
        An index with a model.
    kind
        What is stored for each item. None: the refinement is removed.
    skipped
        Where unreadable images are counted.
    on_progress
        Called with the number of items that are done, and of all.

    Raises
    ------
    InputError
        If the index has no model, or another process upgrades or refines it.
    """
    if kind is not None and index.model is None:
        raise InputError(f"{index.folder} has no model, whose features a refinement is made of.")
    with try_lock(index.folder / UPGRADE_LOCK) as locked:
        if not locked:
            raise InputError(f"Another process is changing all codes of {index.folder}; wait until it is done, or stop it.")
        with index.store.writing():
            version = index.store.active_version
            found = read_refinement(index.store, version)
            if kind is None:
                delete_refinement(index.store, version)
            elif found is None or found.kind != kind:
                create_refinement(index.store, version, kind)
        return 0 if kind is None else _encode_missing(index, version, skipped, on_progress)


def _encode_missing(
    index: LocalIndex, version: int, skipped: "SkippedItems", on_progress: Callable[[int, int], None]
) -> int:
    """Encode all items that have no row, in the order of their ids; return how many could not be read."""
    encoder = index.encoder
    reader = upgrade_class(index, encoder)(index, encoder, skipped, refines=True)
    missing = _missing(index, version)
    total, unreadable = len(index), 0
    for first in range(0, len(missing), CODES_PER_BLOCK):
        part = missing[first : first + CODES_PER_BLOCK]
        on_progress(total - len(missing) + first, total)
        unreadable += len(part) - _encode(index, version, reader, part)
    fit_if_due(index.store, version)
    on_progress(total, total)
    return unreadable


def _missing(index: LocalIndex, version: int) -> UInt32s:
    """Return the ids of items that have neither a row nor stored features, ascending."""
    store = index.store
    with store.reading():
        held = [item_arrays.row_ids(store, name) for name in (rows_name(version), features_name(version))]
        return np.setdiff1d(blocks.coded_ids(store, version), np.concatenate(held))


def _encode(index: LocalIndex, version: int, reader: Upgrade, item_ids: UInt32s) -> int:
    """Store the rows of some items, and return how many were read."""
    store = index.store
    with store.reading():
        found = items.items_by_id(store, item_ids)
    present = [item for _, item in sorted(found.items()) if item.path is not None or index.width is not None]
    kept, _, features = reader.encode_items(present)
    if features is None:
        return 0
    read = np.array([present[row].item_id for row in kept], np.uint32)
    fit_on_sample(store, version, features)
    with store.writing():
        if store.active_version != version:
            raise IndexChangedError(f"{index.folder} was moved to another model meanwhile; run it again.")
        is_left = np.isin(read, items.all_ids(store))  # others were removed meanwhile
        add_features(store, version, read[is_left], features[np.flatnonzero(is_left)])
    return len(read)
