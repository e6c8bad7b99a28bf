"""Filtered snapshots: only the items for which an expression is true."""

import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.aligned_arrays import AlignedArray, AlignedArrays
from proxyhash.index.local.columns import COLUMN, column_types
from proxyhash.index.local.items import find_ids
from proxyhash.index.local.label_table import LabelTable
from proxyhash.index.local.late_filter import LateFilter, estimate_share
from proxyhash.index.local.snapshots import Snapshot, SnapshotCache
from proxyhash.index.local.store import Store
from proxyhash.index.local.texts import find_codes, find_texts
from proxyhash.index.mih.costs import copy_seconds
from proxyhash.index.mih.planner import Planner
from proxyhash.index.where.binding import KEY, LABEL, bind_expression
from proxyhash.index.where.conditions import Condition, Mask
from proxyhash.index.where.evaluation import CodedValues, ColumnValues, KeyValues, NumberValues, compile_expression
from proxyhash.index.where.expression import Expression, columns_of
from proxyhash.utils.parallel import available_threads

MAX_SELECTED = 0.05  # share of the slots whose codes may be copied to a compact segment; if more are kept, others are masked
MIN_CODES_FOR_LATE = 1 << 18  # an expression is evaluated for fewer in less than a millisecond
MIN_LATE_SHARE = 0.5  # that an expression keeps, if it is evaluated after the search
MAX_FILTERS = 1000  # that are cached
MIN_CAPACITY = 1 << 24  # bytes of filtered codes and masks that may be cached, however small the index is


@dataclass(frozen=True, eq=False)
class _Part:
    """What an expression keeps of a segment: a compact segment with its planner, or a mask of its slots.

    With neither, the expression is evaluated after the search. The segment itself is not kept in memory. `spent` is the
    expected time of all searches with the mask: codes are copied as soon as that would have taken less.
    """

    of: "weakref.ref[Segment]"
    compact: tuple[Segment, Planner] | None = None
    mask: SlotMask | None = None
    nbytes: int = 0
    spent: float = 0.0

    @property
    def is_late(self) -> bool:
        return self.compact is None and self.mask is None


@dataclass(frozen=True, eq=False)
class _Filtered:
    """What an expression keeps of both segments of a snapshot."""

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

        self._is_complete: weakref.WeakKeyDictionary[AlignedArray, bool] = weakref.WeakKeyDictionary()  # no value is missing

    @property
    def nbytes(self) -> int:
        """Return the bytes of all filtered codes and masks."""
        return sum(found.nbytes for found in self._filtered.values())

    def get(
        self,
        snapshot: Snapshot,
        expression: Expression,
        threads: int | None = None,
        *,
        queries: int = 1,
        only_masks: bool = False,
    ) -> Snapshot | None:
        """Return only the items for which an expression is true, for a search with so many queries.

        With `only_masks`, the segments stay as they are, so that every plan of the search is possible. The result is None
        if the snapshot is not the latest any more.

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
            bound = bind_expression(expression, column_types(self._store))
            before = self._filtered.get(key)
            late = self._late_filter(snapshot, bound) if before is None and not only_masks else None
            olds = (None, None) if before is None else (before.main, before.delta)
            size = queries, available_threads() if threads is None else threads
            main = _Part(weakref.ref(snapshot.main))
            if late is None:
                main = self._part(snapshot, snapshot.main, bound, olds[0], size, only_masks=only_masks)
            delta = self._part(snapshot, snapshot.delta, bound, olds[1], size, only_masks=only_masks)
            self._filtered[key] = _Filtered(main, delta)
            self._filtered.move_to_end(key)
            self._forget(len(snapshot) * _bytes_per_code(snapshot))
            return _apply(snapshot, main, delta, late)

    def _forget(self, capacity: int) -> None:
        """Drop the filters that were not used for the longest time."""
        while len(self._filtered) > 1 and (self.nbytes > max(MIN_CAPACITY, capacity) or len(self._filtered) > MAX_FILTERS):
            self._filtered.popitem(last=False)

    def _late_filter(self, snapshot: Snapshot, bound: Expression) -> LateFilter | None:
        """Return a filter that is evaluated after the first search with it, if it keeps most items; later, a mask pays."""
        if len(snapshot.main) < MIN_CODES_FOR_LATE:
            return None
        condition = self._compile(snapshot, snapshot.main, bound)
        share = estimate_share(condition, snapshot.main.num_slots)
        return LateFilter(snapshot.main, condition, share) if share >= MIN_LATE_SHARE else None

    def _part(
        self,
        snapshot: Snapshot,
        segment: Segment,
        bound: Expression,
        old: _Part | None,
        size: tuple[int, int],
        *,
        only_masks: bool,
    ) -> _Part:
        """Return what an expression keeps of a segment, for a search with so many queries and threads."""
        old = old if old is not None and old.of() is segment else None
        if old is not None and old.compact is not None:
            return old
        mask = None if old is None else old.mask
        if mask is None:
            mask = self._compile(snapshot, segment, bound).mask(segment.num_slots, size[1])
        spent = (0.0 if old is None else old.spent) + snapshot.planner.base_seconds(segment, *size)
        is_selected = not only_masks and mask.count <= MAX_SELECTED * segment.num_slots
        if is_selected and spent > copy_seconds(segment, mask.count, -(-snapshot.bits // 64)):
            chosen = segment.select(mask)
            compact = chosen, Planner(snapshot.bits)  # its tables would replace those of the snapshot
            return _Part(weakref.ref(segment), compact, nbytes=len(chosen) * _bytes_per_code(snapshot))
        return _Part(weakref.ref(segment), mask=mask, nbytes=mask.nbytes, spent=spent)

    def _compile(self, snapshot: Snapshot, segment: Segment, bound: Expression) -> Condition:
        return compile_expression(bound, {one.name: self._values(snapshot, segment, one.name) for one in columns_of(bound)})

    def _values(self, snapshot: Snapshot, segment: Segment, name: str) -> ColumnValues:
        """Return labels, keys or a column in the order of the slots of a segment."""
        if name == LABEL:
            return self._labels.get(segment, len(snapshot))
        if name == KEY:
            return KeyValues(segment.slot_ids(), self._find_keys)
        array = self._arrays.get(snapshot, segment, COLUMN + name)
        values = array.values[:, 0] if array.values.shape[1] else np.zeros(len(array.known), np.uint8)
        if array not in self._is_complete:
            self._is_complete[array] = bool(np.count_nonzero(array.known) == len(segment))
        known: Mask | None = None if self._is_complete[array] else array.known
        if column_types(self._store)[name] != "text":
            return NumberValues(values, known)
        return CodedValues(values, known, lambda texts: find_codes(self._store, texts), lambda: self._texts_of(array))

    def _find_keys(self, keys: Sequence[str]) -> Int64s:
        return np.sort(np.fromiter(find_ids(self._store, keys).values(), np.int64))

    def _texts_of(self, array: AlignedArray) -> tuple[NDArray[Any], Sequence[str]]:
        """Return the codes (D,) and texts of all values of a column."""
        if array not in self._texts:
            used = np.zeros(1 + int(array.values.max(initial=0)), np.bool_)
            used[array.values[array.known].ravel()] = True
            codes = np.flatnonzero(used)
            found = find_texts(self._store, codes.tolist())
            self._texts[array] = codes, [found[code] for code in codes.tolist()]
        return self._texts[array]


def _apply(snapshot: Snapshot, main: _Part, delta: _Part, late: LateFilter | None) -> Snapshot:
    """Return a snapshot with only what is kept of its segments."""
    changes: dict[str, Any] = {"filters": (late or main.mask, delta.mask)}
    if main.compact is not None:
        changes["main"], changes["planner"] = main.compact
    if delta.compact is not None:
        changes["delta"] = delta.compact[0]
    return replace(snapshot, **changes)


def _bytes_per_code(snapshot: Snapshot) -> int:
    return 8 * ((snapshot.bits + 63) // 64) + 4
