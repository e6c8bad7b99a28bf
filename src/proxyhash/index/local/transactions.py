"""Writes to a local index: each function is one transaction or a sequence of them, each complete or absent."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.columns import Column
from proxyhash.index.clusters.centroids import (
    MIN_CODES_FOR_CLUSTERS,
    RECLUSTER_GROWTH,
    SAMPLE_SIZE,
    assign_clusters,
    choose_centroids,
)
from proxyhash.index.item_ids import ClusterIds
from proxyhash.index.local import blocks, item_arrays, items
from proxyhash.index.local.blocks import Block
from proxyhash.index.local.columns import append_columns
from proxyhash.index.local.items import FileStat, Labels, Source
from proxyhash.index.local.schema import VECTORS
from proxyhash.index.local.store import Store
from proxyhash.index.queries import Features, take_features
from proxyhash.index.refinement.storage import add_features
from proxyhash.utils.errors import IndexChangedError, InputError
from proxyhash.utils.parallel import prefetch
from proxyhash.utils.random import generator

CODES_PER_TRANSACTION = 65_536  # a kill loses at most one transaction; fewer codes would not be worth a write to disk
ARRAY_BYTES_PER_TRANSACTION = 1 << 26  # of kept vectors and other arrays
MAX_ITEM_ID = 2**32 - 1


@dataclass(frozen=True, eq=False)
class ItemBatch:
    """Packed codes (n, bytes) with their keys, and optionally labels, files, arrays (n, width) and columns (n,) by name.

    `codes_id` is that of the store. A row of a masked array that is masked is not stored: its item has none.
    """

    codes_id: tuple[int, int]
    codes: Packed
    keys: Sequence[str]
    labels: Labels | None = None
    source: Source | None = None
    files: Sequence[FileStat] | None = None
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    features: Features | None = None  # (n, num_features), for the refinement
    assignment: "Assignment | None" = None  # computed before, while another batch was written

    def __len__(self) -> int:
        """Return n."""
        return len(self.codes)

    @property
    def version(self) -> int:
        """Return the version of the codes."""
        return self.codes_id[1]

    def select(self, rows: slice) -> "ItemBatch":
        """Return some of the items."""
        labels = None if self.labels is None else self.labels[rows]
        files = None if self.files is None else self.files[rows]
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        columns = {name: column.select(rows) for name, column in self.columns.items()}
        features = None if self.features is None or not len(self.codes[rows]) else take_features(self.features, rows)
        return ItemBatch(
            self.codes_id, self.codes[rows], self.keys[rows], labels, self.source, files, arrays, columns, features
        )


@dataclass(frozen=True, eq=False)
class Assignment:
    """Clusters of codes (n,), and the centroids that they were assigned by."""

    clusters: ClusterIds
    centroids: Packed | None


def add_batch(store: Store, batch: ItemBatch) -> int:
    """Add a batch in one transaction, and return how many items with the same keys it replaced."""
    with store.writing() as generation:
        meta = store.meta()
        if store.codes_id != batch.codes_id:
            raise IndexChangedError("The index was replaced or moved to another model meanwhile; run it again.")
        if meta.next_id + len(batch) > MAX_ITEM_ID:
            raise InputError(f"An index holds at most {MAX_ITEM_ID:,} items, counting those that were replaced or removed.")
        source = None if batch.source is None else items.add_source(store, batch.source)
        replaced = 0
        try:
            store.run("SAVEPOINT items")
            _insert(store, batch, meta.next_id, source)
        except sqlite3.IntegrityError:  # rare, so that looking up every key beforehand would be a waste
            store.run("ROLLBACK TO items")
            replaced = _remove_existing(store, batch, generation)
            _insert(store, batch, meta.next_id, source)
        _append_codes(store, batch, meta.next_id, generation)
        _append_rows(store, batch, meta.next_id)
        if batch.features is not None:
            item_ids = np.arange(meta.next_id, meta.next_id + len(batch), dtype=np.uint32)
            add_features(store, batch.version, item_ids, batch.features)
        store.set_meta(next_id=meta.next_id + len(batch))
    return replaced


def _insert(store: Store, batch: ItemBatch, first_id: int, source: int | None) -> None:
    item_ids = range(first_id, first_id + len(batch))
    items.insert_items(store, item_ids, batch.keys, batch.labels, source, batch.files)


def _remove_existing(store: Store, batch: ItemBatch, generation: int) -> int:
    """Remove the items that a batch replaces, and return how many."""
    old = np.sort(np.fromiter(items.ids_by_key(store, batch.keys).values(), np.uint32))
    items.delete_items(store, old)
    blocks.remove_codes(store, batch.version, old, generation)
    item_arrays.remove_rows(store, old)
    return len(old)


def _append_codes(store: Store, batch: ItemBatch, first_id: int, generation: int) -> None:
    """Add the codes of a batch in their clusters."""
    centroids = store.centroids(batch.version)
    assigned = batch.assignment
    if assigned is None or not np.array_equal(assigned.centroids, centroids):  # type: ignore[arg-type]  # None equals None
        assigned = Assignment(assign_clusters(batch.codes, centroids), centroids)
    item_ids = np.arange(first_id, first_id + len(batch), dtype=np.uint32)
    blocks.append_codes(store, batch.version, Block(item_ids, assigned.clusters, batch.codes), generation)


def _append_rows(store: Store, batch: ItemBatch, first_id: int) -> None:
    """Add the rows of a batch to its arrays and columns; vectors are kept as float16 or float32."""
    item_ids = np.arange(first_id, first_id + len(batch), dtype=np.uint32)
    for name, rows in batch.arrays.items():
        is_known = ~np.ma.getmaskarray(rows).any(1) if np.ma.isMaskedArray(rows) else np.ones(len(rows), bool)
        dtype = _kept_dtype(rows.dtype) if name == VECTORS else rows.dtype
        known = np.asarray(rows if is_known.all() else rows[is_known], dtype)
        item_arrays.append_rows(store, name, item_ids[is_known], known)
    append_columns(store, item_ids, batch.columns)


def _kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype("<f2" if dtype.itemsize == 2 else "<f4")


def items_per_transaction(*arrays: NDArray[Any]) -> int:
    """Return how many items are written in a transaction; fewer if rows of arrays (N, width) are written with them."""
    bytes_per_item = sum(int(array.shape[1]) * array.itemsize for array in arrays)
    if not bytes_per_item:
        return CODES_PER_TRANSACTION
    return min(CODES_PER_TRANSACTION, max(1, ARRAY_BYTES_PER_TRANSACTION // bytes_per_item))


def add_batches(store: Store, batch: ItemBatch) -> int:
    """Add many codes in several transactions; clusters of the next part are assigned while one is written."""
    size = items_per_transaction(*batch.arrays.values())
    parts = [batch.select(slice(first, first + size)) for first in range(0, len(batch), size)]
    if len(parts) == 1:
        return add_batch(store, parts[0])
    _, centroids = active_centroids(store)
    replaced = 0
    with ThreadPoolExecutor(1) as pool:
        assigned = ((part, pool.submit(assign_clusters, part.codes, centroids)) for part in parts)
        for part, clusters in prefetch(assigned, 1):
            replaced += add_batch(store, replace(part, assignment=Assignment(clusters.result(), centroids)))
    return replaced


def remove_keys(store: Store, keys: Sequence[str]) -> int:
    """Remove items in one transaction: all of them, or none if one is unknown."""
    with store.writing() as generation:
        found = items.require_ids(store, keys, "; nothing was removed")
        item_ids = np.sort(np.fromiter(found.values(), np.uint32, len(found)))
        items.delete_items(store, item_ids)
        blocks.remove_codes(store, store.active_version, item_ids, generation)
        item_arrays.remove_rows(store, item_ids)
    return len(found)


def active_centroids(store: Store) -> tuple[int, Packed | None]:
    """Return the active version and its centroids."""
    with store.reading():
        version = store.active_version
        return version, store.centroids(version)


def recluster_if_grown(store: Store, incoming: Packed | None, proxies: Callable[[], Packed | None]) -> None:
    """Choose centroids before codes are added, if the index becomes large, or much larger than when they were chosen."""
    info = store.active_info()
    count = info.num_codes + (0 if incoming is None else len(incoming))
    if count >= max(MIN_CODES_FOR_CLUSTERS, RECLUSTER_GROWTH * info.clustered_at):
        recluster(store, incoming, proxies)


def recluster(store: Store, incoming: Packed | None, proxies: Callable[[], Packed | None]) -> None:
    """Choose centroids for stored and incoming codes, and assign every stored code again.

    `proxies` is called in the transaction, so that an upgrade cannot change the model meanwhile.
    """
    with store.writing() as generation:
        version, info = store.active_version, store.active_info()
        width = (info.bits + 7) // 8
        if incoming is None or incoming.shape[1] != width:  # codes of another model, which will be refused
            incoming = np.zeros((0, width), np.uint8)
        count = info.num_codes + len(incoming)
        if not count:
            return
        chosen = choose_centroids(_sample(store, version, incoming, info.num_codes), count, proxies())
        store.set_centroids(version, chosen.codes, count)
        for number in blocks.list_blocks(store, version):
            block = blocks.read_block(store, version, number)
            clustered = block.with_clusters(assign_clusters(block.codes, chosen.codes))
            blocks.write_block(store, version, number, clustered, generation)


def _sample(store: Store, version: int, incoming: Packed, count: int) -> Packed:
    """Return a sample of stored and incoming codes, in proportion, spread over all blocks."""
    random = generator(0, "sample")
    size = min(SAMPLE_SIZE, count + len(incoming))
    new = round(size * len(incoming) / (count + len(incoming)))
    parts = [incoming[np.sort(random.choice(len(incoming), new, replace=False))]] if new else []
    numbers = list(blocks.list_blocks(store, version))
    chosen = [numbers[index] for index in np.unique(np.linspace(0, len(numbers) - 1, 32).astype(int))] if numbers else []
    for block in blocks.read_blocks(store, version, chosen):
        rows = min(len(block), -(-(size - new) // len(chosen)))
        parts.append(block.codes[np.sort(random.choice(len(block), rows, replace=False))])
    return np.concatenate(parts)
