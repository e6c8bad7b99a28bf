"""Snapshots of the items that have one of some labels."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from proxyhash.index.local.items import check_rows_from, count_items, ids_with_labels
from proxyhash.index.local.snapshots import Snapshot, SnapshotCache
from proxyhash.index.local.store import Store

MIN_CAPACITY = 65_536  # codes that may be cached, however small the index is


@dataclass(frozen=True, eq=False)
class _Filtered:
    """A snapshot with only the items that have one of some labels; the labels of items below `next_id` were read."""

    snapshot: Snapshot
    next_id: int


class FilterCache:
    """Filtered snapshots that were used last. Together they have at most as many codes as the index, or one filter alone.

    An item is never changed, only replaced by one with another id. So after a change of the index, only the labels of items
    that were added since are read, and items that are gone are those that the new snapshot does not have.
    """

    def __init__(self, store: Store, snapshots: SnapshotCache) -> None:
        self._store, self._snapshots = store, snapshots
        self._times_opened = 0
        self._checked_id = 0  # rows of items below were compared with their checksums
        self._filtered: OrderedDict[tuple[str, ...], _Filtered] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of codes of all filtered snapshots."""
        return sum(len(found.snapshot) for found in self._filtered.values())

    def get(self, snapshot: Snapshot, labels: tuple[str, ...]) -> Snapshot | None:
        """Return only the items with at least one of these labels; None if the snapshot is not the latest any more."""
        with self._store.reading():  # keeps other threads out
            if not self._snapshots.is_latest(snapshot):
                return None
            if self._times_opened != snapshot.times_opened:
                self._filtered.clear()
                self._times_opened, self._checked_id = snapshot.times_opened, 0
            found = self._filtered.get(labels)
            if found is None or found.snapshot.generation != snapshot.generation:
                self._filtered[labels] = found = self._select(snapshot, labels, found)
            self._filtered.move_to_end(labels)
            while len(self._filtered) > 1 and len(self) > max(MIN_CAPACITY, len(snapshot)):
                self._filtered.popitem(last=False)
            return found.snapshot

    def _select(self, snapshot: Snapshot, labels: tuple[str, ...], before: _Filtered | None) -> _Filtered:
        next_id = self._store.meta().next_id
        self._check_rows(len(snapshot))
        self._checked_id = next_id
        item_ids = ids_with_labels(self._store, labels, 0 if before is None else before.next_id)
        if before is not None:
            item_ids = np.concatenate([before.snapshot.item_ids(), item_ids])
        mask = np.zeros(1 + max((block.max_id for block in snapshot.blocks.values()), default=-1), np.bool_)
        mask[item_ids[item_ids < len(mask)]] = True
        return _Filtered(snapshot.select(mask), next_id)

    def _check_rows(self, num_codes: int) -> None:
        """Raise if an item is missing, or one that was not checked before does not match its checksum."""
        if not self._checked_id:
            num_items = count_items(self._store)
            if num_items != num_codes:
                self._store.raise_damaged(f"it has {num_items:,} items, but {num_codes:,} codes")
        check_rows_from(self._store, self._checked_id)
