"""Filtered snapshots: only the items for which an expression is true."""

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.clusters.segment import Segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.aligned_arrays import AlignedArray, AlignedArrays
from proxyhash.index.local.columns import COLUMN, column_types
from proxyhash.index.local.items import ids_by_key
from proxyhash.index.local.label_table import LabelTable
from proxyhash.index.local.snapshots import Snapshot, SnapshotCache
from proxyhash.index.local.store import Store
from proxyhash.index.local.texts import find_codes, find_texts
from proxyhash.index.mih.planner import Planner
from proxyhash.index.where.binding import KEY, LABEL, bind_expression
from proxyhash.index.where.evaluation import CodedValues, ColumnValues, KeyValues, Mask, NumberValues, evaluate
from proxyhash.index.where.expression import Expression, columns_of

MAX_SELECTED = 0.1  # share of the slots that are copied to a compact segment; if more are kept, others are masked
MIN_CAPACITY = 1 << 24  # bytes of filtered codes and masks that may be cached, however small the index is


@dataclass(frozen=True, eq=False)
class _Part:
    """What an expression keeps of a segment: the same segment and a mask (slots,), or a compact segment without a mask."""

    of: "weakref.ref[Segment]"
    compact: Segment | None
    allowed: Mask | None
    nbytes: int


@dataclass(frozen=True, eq=False)
class _Filtered:
    """A filtered snapshot, and its parts."""

    snapshot: Snapshot
    main: _Part
    delta: _Part

    @property
    def nbytes(self) -> int:
        return self.main.nbytes + self.delta.nbytes


class FilterCache:
    """Filtered snapshots that were used last. Together they take at most as many bytes as all codes, or one filter alone.

    An item is never changed, only replaced by one with another id. So what an expression keeps of a segment stays right.
    """

    def __init__(self, store: Store, snapshots: SnapshotCache, arrays: AlignedArrays) -> None:
        self._store, self._snapshots, self._arrays = store, snapshots, arrays
        self._labels = LabelTable(store)
        self._times_opened = 0
        self._filtered: OrderedDict[tuple[Expression, bool], _Filtered] = OrderedDict()
        self._texts: weakref.WeakKeyDictionary[AlignedArray, tuple[NDArray[Any], Sequence[str]]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def nbytes(self) -> int:
        """Return the bytes of all filtered codes and masks."""
        return sum(found.nbytes for found in self._filtered.values())

    def get(
        self, snapshot: Snapshot, expression: Expression, threads: int | None = None, *, only_masks: bool = False
    ) -> Snapshot | None:
        """Return only the items for which an expression is true; None if the snapshot is not the latest any more.

        With `only_masks`, the segments stay as they are, so that every plan of the search is possible.

        Raises
        ------
        InputError
            If the expression names an unknown column, or compares one with a constant of another type.
        """
        with self._store.reading():  # keeps other threads out
            if not self._snapshots.is_latest(snapshot):
                return None
            if self._times_opened != snapshot.times_opened:
                self._filtered.clear()
                self._times_opened = snapshot.times_opened
            key = expression, only_masks
            found = self._filtered.get(key)
            if found is None or found.snapshot.generation != snapshot.generation:
                self._filtered[key] = found = self._filter(snapshot, key, found, threads)
            self._filtered.move_to_end(key)
            capacity = max(MIN_CAPACITY, len(snapshot) * _bytes_per_code(snapshot))
            while len(self._filtered) > 1 and self.nbytes > capacity:
                self._filtered.popitem(last=False)
            return found.snapshot

    def _filter(
        self, snapshot: Snapshot, key: tuple[Expression, bool], before: _Filtered | None, threads: int | None
    ) -> _Filtered:
        bound, only_masks = bind_expression(key[0], column_types(self._store)), key[1]
        olds = (None, None) if before is None else (before.main, before.delta)
        main, delta = (
            old if old is not None and old.of() is segment else self._select(snapshot, segment, bound, threads, only_masks)
            for segment, old in zip((snapshot.main, snapshot.delta), olds, strict=True)
        )
        changes: dict[str, Any] = {"allowed": (main.allowed, delta.allowed)}
        if main.compact is not None:
            changes |= {"main": main.compact, "planner": Planner(snapshot.bits)}  # its tables would replace the others
        if delta.compact is not None:
            changes["delta"] = delta.compact
        return _Filtered(replace(snapshot, **changes), main, delta)

    def _select(
        self, snapshot: Snapshot, segment: Segment, bound: Expression, threads: int | None, only_masks: bool
    ) -> _Part:
        """Return what an expression keeps of a segment."""
        columns = {one.name: self._values(snapshot, segment, one.name) for one in columns_of(bound)}
        mask = evaluate(bound, columns, segment.num_slots, threads)
        if only_masks or np.count_nonzero(mask) > MAX_SELECTED * len(mask):
            return _Part(weakref.ref(segment), None, mask, mask.nbytes)
        chosen = segment.select(mask)
        return _Part(weakref.ref(segment), chosen, None, len(chosen) * _bytes_per_code(snapshot))

    def _values(self, snapshot: Snapshot, segment: Segment, name: str) -> ColumnValues:
        """Return labels, keys or a column in the order of the slots of a segment."""
        if name == LABEL:
            return self._labels.get(segment, len(snapshot))
        if name == KEY:
            return KeyValues(segment.slot_ids(), self._find_keys)
        array = self._arrays.get(snapshot, segment, COLUMN + name)
        values = array.values[:, 0] if array.values.shape[1] else np.zeros(len(array.known), np.uint8)
        known: Mask | None = None if np.count_nonzero(array.known) == len(segment) else array.known
        if column_types(self._store)[name] != "text":
            return NumberValues(values, known)
        return CodedValues(values, known, lambda texts: find_codes(self._store, texts), lambda: self._texts_of(array))

    def _find_keys(self, keys: Sequence[str]) -> Int64s:
        return np.sort(np.fromiter(ids_by_key(self._store, keys).values(), np.int64))

    def _texts_of(self, array: AlignedArray) -> tuple[NDArray[Any], Sequence[str]]:
        """Return the codes (D,) and texts of all values of a column."""
        if array not in self._texts:
            used = np.zeros(1 + int(array.values.max(initial=0)), np.bool_)
            used[array.values[array.known].ravel()] = True
            codes = np.flatnonzero(used)
            found = find_texts(self._store, codes.tolist())
            self._texts[array] = codes, [found[code] for code in codes.tolist()]
        return self._texts[array]


def _bytes_per_code(snapshot: Snapshot) -> int:
    return 8 * ((snapshot.bits + 63) // 64) + 4
