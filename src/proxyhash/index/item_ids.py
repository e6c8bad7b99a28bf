"""Compact arrays of item ids, and the array types of the index."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit
from proxyhash.utils.parallel import over_slices

Int = int | np.integer[Any]
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
ClusterIds = NDArray[np.uint16]

_IDS_PER_SLICE = 1 << 14  # that a thread copies at a time


class ItemIds(NamedTuple):
    """Item ids (N,): three bytes each while all are below 2^24, else four. `low` holds two bytes, `high` the rest."""

    low: NDArray[np.uint16]
    high: NDArray[np.uint8] | NDArray[np.uint16]

    def at(self, slots: Int64s | NDArray[np.bool_] | slice) -> Int64s:
        """Return the ids in some slots."""
        return self.low[slots] | (self.high[slots].astype(np.int64) << 16)

    def select(self, mask: NDArray[np.bool_]) -> "ItemIds":
        """Return the ids where `mask` (N,) is True."""
        return ItemIds(self.low[mask], self.high[mask])

    def take(self, slots: Int64s) -> "ItemIds":
        """Return the ids in some slots (n,); they are read by compiled code, because most of them are not in the cache."""
        out = ItemIds(np.empty(len(slots), self.low.dtype), np.empty(len(slots), self.high.dtype))

        def copy(rows: slice) -> None:
            _copy_ids(self, slots[rows], ItemIds(out.low[rows], out.high[rows]))

        over_slices(len(slots), _IDS_PER_SLICE, copy)
        return out


def empty_item_ids(count: int, below: int) -> ItemIds:
    """Return an array for `count` ids below a number."""
    high = np.zeros(count, np.uint8) if below <= 2**24 else np.zeros(count, np.uint16)
    return ItemIds(np.zeros(count, np.uint16), high)


def pack_item_ids(numbers: NDArray[np.integer[Any]]) -> ItemIds:
    """Return ids (N,) in as few bytes as they need."""
    item_ids = empty_item_ids(len(numbers), int(numbers.max(initial=0)) + 1)
    item_ids.low[:], item_ids.high[:] = numbers & 0xFFFF, numbers >> 16
    return item_ids


@jit(nogil=True, skip_refcounts=True, inline="always")
def item_id_at(item_ids: ItemIds, slot: Int) -> Int:
    """Return the id in a slot."""
    return np.uint64(item_ids.low[slot]) | (np.uint64(item_ids.high[slot]) << np.uint64(16))


@jit(nogil=True, skip_refcounts=True)
def _copy_ids(item_ids: ItemIds, slots: Int64s, out: ItemIds) -> None:
    """Copy the ids in some slots (n,) to `out` (n,)."""
    for row in range(len(slots)):
        out.low[row], out.high[row] = item_ids.low[slots[row]], item_ids.high[slots[row]]


@jit(nogil=True, skip_refcounts=True, inline="always")
def set_item_id(item_ids: ItemIds, slot: Int, number: Int) -> None:
    """Store the id of a slot."""
    item_ids.low[slot], item_ids.high[slot] = number & 0xFFFF, number >> 16
