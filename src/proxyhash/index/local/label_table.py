"""Labels of all items in memory, as codes of the sets of labels that occur."""

import weakref

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.clusters.segment import Segment
from proxyhash.index.local.items import check_rows_from, count_items, labels_from_json
from proxyhash.index.local.store import Store
from proxyhash.index.where.evaluation import LabelSets


class LabelTable:
    """The set of labels of each item, in the order of item ids.

    An item is never changed, only replaced by one with another id. So after a change of the index, only the labels of items
    that were added since are read. Rows are compared with their checksums before their labels are trusted.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._times_opened = 0
        self._clear()

    def _clear(self) -> None:
        self._next_id = 0  # labels of items below were read
        self._codes: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._sets: list[tuple[str, ...]] = [()]
        self._numbers: dict[str, int] = {}  # of sets, by their JSON
        self._aligned: weakref.WeakKeyDictionary[Segment, LabelSets] = weakref.WeakKeyDictionary()

    def get(self, segment: Segment, num_codes: int) -> LabelSets:
        """Return the labels of the slots of a segment of an index with so many codes, in a transaction."""
        if self._times_opened != self._store.times_opened:
            self._clear()
            self._times_opened = self._store.times_opened
        if self._next_id != self._store.meta().next_id:
            self._read(num_codes)
        found = self._aligned.get(segment)
        if found is None:
            codes = self._codes[np.maximum(segment.slot_ids(), 0)] if len(self._codes) else np.zeros(0, np.uint32)
            found = LabelSets(codes.astype(np.min_scalar_type(len(self._sets))), self._sets)
            self._aligned[segment] = found
        return found

    def _read(self, num_codes: int) -> None:
        """Read the labels of items that are new; raise if an item is missing or does not match its checksum."""
        next_id, first_id = self._store.meta().next_id, self._next_id
        if not first_id:
            num_items = count_items(self._store)
            if num_items != num_codes:
                self._store.raise_damaged(f"it has {num_items:,} items, but {num_codes:,} codes")
        check_rows_from(self._store, first_id)
        rows = self._store.each("SELECT item_id, labels FROM items WHERE item_id >= ? AND labels IS NOT NULL", first_id)
        found = np.fromiter(((item_id, self._number(text)) for item_id, text in rows), [("id", "u4"), ("code", "u4")])
        codes = np.zeros(next_id, np.uint32)
        codes[: len(self._codes)] = self._codes
        codes[found["id"]] = found["code"]
        self._codes, self._next_id = codes, next_id

    def _number(self, text: str) -> int:
        """Return the code of a set of labels."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._sets)
            self._sets.append(labels_from_json(text))
        return number
