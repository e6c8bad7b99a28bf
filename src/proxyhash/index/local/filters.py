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
from proxyhash.index.where.binding import KEY, LABEL, bind_expression
from proxyhash.index.where.evaluation import CodedValues, ColumnValues, KeyValues, Mask, NumberValues, evaluate
from proxyhash.index.where.expression import Expression, columns_of

MIN_CAPACITY = 1 << 24  # bytes of filtered codes and masks that may be cached, however small the index is


@dataclass(frozen=True, eq=False)
class _Part:
    """The slots of a segment that an expression keeps: a mask (slots,), or a segment with only these."""

    of: "weakref.ref[Segment]"
    segment: Segment
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
        self._filtered: OrderedDict[Expression, _Filtered] = OrderedDict()
        self._texts: weakref.WeakKeyDictionary[AlignedArray, tuple[NDArray[Any], Sequence[str]]] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def nbytes(self) -> int:
        """Return the bytes of all filtered codes and masks."""
        return sum(found.nbytes for found in self._filtered.values())

    def get(self, snapshot: Snapshot, expression: Expression, threads: int | None = None) -> Snapshot | None:
        """Return only the items for which an expression is true; None if the snapshot is not the latest any more.

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
            found = self._filtered.get(expression)
            if found is None or found.snapshot.generation != snapshot.generation:
                self._filtered[expression] = found = self._filter(snapshot, expression, found, threads)
            self._filtered.move_to_end(expression)
            capacity = max(MIN_CAPACITY, len(snapshot) * _bytes_per_code(snapshot))
            while len(self._filtered) > 1 and self.nbytes > capacity:
                self._filtered.popitem(last=False)
            return found.snapshot

    def _filter(
        self, snapshot: Snapshot, expression: Expression, before: _Filtered | None, threads: int | None
    ) -> _Filtered:
        bound = bind_expression(expression, column_types(self._store))
        olds = (None, None) if before is None else (before.main, before.delta)
        main, delta = (
            old if old is not None and old.of() is segment else self._select(snapshot, segment, bound, threads)
            for segment, old in zip((snapshot.main, snapshot.delta), olds, strict=True)
        )
        filtered: Any = {"main": main.segment, "delta": delta.segment}
        return _Filtered(replace(snapshot, **filtered), main, delta)

    def _select(self, snapshot: Snapshot, segment: Segment, bound: Expression, threads: int | None) -> _Part:
        """Return what an expression keeps of a segment."""
        slot_ids = segment.slot_ids()
        columns = {one.name: self._values(snapshot, segment, one.name) for one in columns_of(bound)}
        mask = evaluate(bound, columns, len(slot_ids), threads) & (slot_ids >= 0)
        by_id = np.zeros(1 + int(slot_ids.max(initial=-1)), np.bool_)
        by_id[slot_ids[mask]] = True
        chosen = segment.select(by_id)
        return _Part(weakref.ref(segment), chosen, len(chosen) * _bytes_per_code(snapshot))

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
