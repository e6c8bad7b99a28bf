"""Positions of codes in memory: three bytes each while all are below 2^24, else four."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit

Longs = NDArray[np.int64]
Starts = NDArray[np.uint32]
Whole = int | np.integer[Any]


class Positions(NamedTuple):
    """The low two bytes of each position (N,), and the rest: one byte or two."""

    low: NDArray[np.uint16]
    high: NDArray[np.uint8] | NDArray[np.uint16]

    def at(self, places: Longs | NDArray[np.bool_] | slice) -> Longs:
        """Return the positions of what lies at some places."""
        return self.low[places] | (self.high[places].astype(np.int64) << 16)

    def some(self, which: NDArray[np.bool_]) -> "Positions":
        """Return some of them."""
        return Positions(self.low[which], self.high[which])


def no_positions(count: int, below: int) -> Positions:
    """Return room for so many positions below a number."""
    high = np.zeros(count, np.uint8) if below <= 2**24 else np.zeros(count, np.uint16)
    return Positions(np.zeros(count, np.uint16), high)


def positions_from(numbers: NDArray[np.integer[Any]]) -> Positions:
    """Return positions (N,) in as few bytes as they need."""
    positions = no_positions(len(numbers), int(numbers.max(initial=0)) + 1)
    positions.low[:], positions.high[:] = numbers & 0xFFFF, numbers >> 16
    return positions


@jit(nogil=True, skip_refcounts=True, inline="always")
def position_at(positions: Positions, place: Whole) -> Whole:
    """Return one position."""
    return np.uint64(positions.low[place]) | (np.uint64(positions.high[place]) << np.uint64(16))


@jit(nogil=True, skip_refcounts=True, inline="always")
def put_position(positions: Positions, place: Whole, number: Whole) -> None:
    """Write one position."""
    positions.low[place], positions.high[place] = number & 0xFFFF, number >> 16
