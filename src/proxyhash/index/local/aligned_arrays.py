"""Item arrays in memory, in the order of a segment's slots."""

import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.clusters.segment import Segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.array_blocks import ArrayBlockInfo, Rows
from proxyhash.index.local.item_arrays import list_array_blocks, list_arrays, read_array_blocks, row_type
from proxyhash.index.local.snapshots import Snapshot
from proxyhash.index.local.store import Store
from proxyhash.utils.available_memory import check_memory

_MAX_LARGER = 4  # times as many slots that a segment may have whose rows are copied: others take longer than the disk
_FEW_SLOTS = 65_536


@dataclass(frozen=True, eq=False)
class AlignedArray:
    """Rows `values` (slots, width) of an array, and which of them are `known` (slots,): others are zeros."""

    values: Rows
    known: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Entry:
    """An aligned array of a segment, and what it was made of."""

    segment: weakref.ref[Segment]
    slot_ids: Int64s
    array: AlignedArray
    created: tuple[int, int]  # how often a file was opened, and the generation in which the array was created there
    blocks: dict[int, ArrayBlockInfo]  # of the array, whose rows were read
    state: tuple[int, int]  # how often a file was opened, and its generation, when this was found to be up to date


class AlignedArrays:
    """Aligned arrays of the segments in use. After a change, only the blocks of rows that changed are read.

    A row never changes, so that rows of older segments are copied to those that follow them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._entries: dict[str, list[_Entry]] = {}

    def get(self, snapshot: Snapshot, segment: Segment, name: str) -> AlignedArray:
        """Return an array in the order of the slots of a segment.

        Parameters
        ----------
        snapshot
            The latest snapshot. If it is not the latest any more, rows of items that were removed since may be unknown;
            then the search must be repeated.
        segment
            One of its segments, or a selection of one.
        name
            The array. If it does not exist, no row is known.

        Returns
        -------
        AlignedArray
            It must not be changed.
        """
        state = snapshot.times_opened, snapshot.generation
        found = self._find(segment, name)
        if found is not None and found.state == state:
            return found.array
        with self._store.reading():  # keeps other threads out
            new = self._update(segment, name)
            others = [entry for entry in self._entries.get(name, []) if entry.segment() not in (None, segment)]
            self._entries[name] = [*others, new]
        return new.array

    def _find(self, segment: Segment, name: str) -> _Entry | None:
        return next((entry for entry in self._entries.get(name, []) if entry.segment() is segment), None)

    def _update(self, segment: Segment, name: str) -> _Entry:
        """Return the array as it is now: an entry that is up to date, or a new one."""
        store = self._store
        info, blocks = list_arrays(store).get(name), list_array_blocks(store, name)
        state = store.times_opened, store.generation
        created = store.times_opened, -1 if info is None else info.generation
        sources = [entry for entry in self._entries.get(name, []) if entry.created == created]
        own = next((entry for entry in sources if entry.segment() is segment), None)
        if own is not None and own.blocks == blocks:
            return replace(own, state=state)
        slot_ids = segment.slot_ids() if own is None else own.slot_ids
        sources = [own] if own is not None else [entry for entry in sources if _is_worth_copying(entry, len(slot_ids))]
        draft = _copy_rows(slot_ids, sources, *row_type(store, name, blocks))
        array = self._read_missing(name, slot_ids, draft, blocks, sources)
        return _Entry(weakref.ref(segment), slot_ids, array, created, blocks, state)

    def _read_missing(
        self, name: str, slot_ids: Int64s, draft: "_Draft", blocks: dict[int, ArrayBlockInfo], sources: list[_Entry]
    ) -> AlignedArray:
        """Read the rows that are not known yet; a row that a source did not know can be in a block that changed."""
        values, known = draft.values, draft.known
        missing = np.flatnonzero(~known & (slot_ids >= 0))
        missing = missing[np.argsort(slot_ids[missing], kind="stable")]
        new = missing[~draft.is_copied[missing]]
        missing_ids, new_ids = slot_ids[missing], slot_ids[new]
        for number, info in blocks.items():
            is_old = all(source.blocks.get(number) == info for source in sources)
            slots, ids = (new, new_ids) if is_old else (missing, missing_ids)
            first, end = np.searchsorted(ids, [info.min_id, info.max_id + 1])
            if first == end:
                continue
            (block,) = read_array_blocks(self._store, name, [number])
            rows = np.searchsorted(block.item_ids, ids[first:end])
            has_row = block.item_ids[rows] == ids[first:end]
            if has_row.any():
                values, known = (array if array.flags.writeable else array.copy() for array in (values, known))
                values[slots[first:end][has_row]], known[slots[first:end][has_row]] = block.rows[rows[has_row]], True
        for array in (values, known):
            array.flags.writeable = False  # it is shared with later entries
        return AlignedArray(values, known)


@dataclass(frozen=True, eq=False)
class _Draft:
    """Rows that were copied from other entries: `is_copied` (slots,) also where it is known that there was none."""

    values: Rows
    known: NDArray[np.bool_]
    is_copied: NDArray[np.bool_]


def _is_worth_copying(entry: _Entry, num_slots: int) -> bool:
    """Return whether rows of an entry are copied to a segment: looking for a few in many takes longer than the disk."""
    return len(entry.slot_ids) <= _MAX_LARGER * num_slots + _FEW_SLOTS


def _copy_rows(slot_ids: Int64s, sources: list[_Entry], width: int, dtype: np.dtype[Any]) -> _Draft:
    """Return the rows of items that other segments have; the very array of one with the same slots."""
    is_filled = slot_ids >= 0
    for source in sources:
        is_same = len(source.slot_ids) == len(slot_ids) and not ((source.slot_ids != slot_ids) & is_filled).any()
        if is_same and (source.array.values.shape[1], source.array.values.dtype) == (width, dtype):
            return _Draft(source.array.values, source.array.known & is_filled, is_filled)
    needed = len(slot_ids) * (width * dtype.itemsize + 2)
    check_memory(needed, f"{len(slot_ids):,} rows of an array need", "use a machine with more memory")
    values, known = np.zeros((len(slot_ids), width), dtype), np.zeros(len(slot_ids), bool)
    is_copied = np.zeros(len(slot_ids), bool)
    for source in sources:
        if source.array.values.shape[1] != width:
            continue
        _, slots, theirs = np.intersect1d(slot_ids, source.slot_ids, assume_unique=False, return_indices=True)
        slots, theirs = slots[slot_ids[slots] >= 0], theirs[slot_ids[slots] >= 0]
        values[slots], known[slots] = source.array.values[theirs], source.array.known[theirs]
        is_copied[slots] = True
    return _Draft(values, known, is_copied)
