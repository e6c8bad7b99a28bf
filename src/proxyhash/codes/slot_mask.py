"""Masks of slots, one bit each."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.utils.jit import jit
from proxyhash.utils.parallel import over_slices

Int64s = NDArray[np.int64]

_WORDS_PER_SLICE = 1 << 14  # that a thread lists at a time: a million slots


@dataclass(frozen=True, eq=False)
class SlotMask:
    """Which slots may be found: slot 64 w + i if bit i of word w of `words` (M,) is set.

    Examples
    --------
    >>> mask = SlotMask.of(np.array([True, False, True]))
    >>> mask.count, mask.at(np.array([1, 2])).tolist(), mask.slots().tolist()
    (2, [False, True], [0, 2])
    """

    words: Words

    @classmethod
    def of(cls, allowed: NDArray[np.bool_]) -> "SlotMask":
        """Return the mask of slots that are True in `allowed` (n,)."""
        return cls(pack_bits(allowed, -(-len(allowed) // 64)))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the words."""
        return self.words.nbytes

    @cached_property
    def count(self) -> int:
        """Return the number of slots that may be found."""
        return int(np.bitwise_count(self.words).sum())

    def __and__(self, other: "SlotMask") -> "SlotMask":
        """Return the mask of slots that are in both masks, which have as many slots."""
        return SlotMask(self.words & other.words)

    def at(self, slots: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Return which of some slots (n,) may be found."""
        bits: NDArray[np.bool_] = (self.words[slots >> 6] >> (slots & 63).astype(np.uint64) & np.uint64(1)).astype(np.bool_)
        return bits

    def slots(self) -> Int64s:
        """Return the slots that may be found (count,), ascending."""
        if not len(self.words):
            return np.empty(0, np.int64)
        starts = np.arange(0, len(self.words), _WORDS_PER_SLICE)
        counts = np.add.reduceat(np.bitwise_count(self.words), starts, dtype=np.int64)
        ends = np.concatenate([[0], np.cumsum(counts)])
        out = np.empty(ends[-1], np.int64)

        def list_slice(part: slice) -> None:
            number = part.start // _WORDS_PER_SLICE
            _list_bits(self.words[part], 64 * part.start, out[ends[number] : ends[number + 1]])

        over_slices(len(self.words), _WORDS_PER_SLICE, list_slice)
        return out

    def blocks(self, blocks: int, lanes: int) -> Words:
        """Return the words of `blocks` blocks of `lanes` words (B, L); slots beyond the mask may not be found."""
        padded = self.words
        if len(padded) < blocks * lanes:
            padded = np.zeros(blocks * lanes, np.uint64)
            padded[: len(self.words)] = self.words
        return padded[: blocks * lanes].reshape(blocks, lanes)


def pack_bits(mask: NDArray[np.bool_], words: int) -> Words:
    """Return a mask (n,) as bits in so many words, 64 or fewer bits in each; missing ones are 0."""
    out = np.zeros(8 * words, np.uint8)
    packed = np.packbits(mask, bitorder="little")
    out[: len(packed)] = packed
    return out.view("<u8")


def unpack_bits(words: Words, count: int) -> NDArray[np.bool_]:
    """Return the first `count` bits of words (M,) as a mask (count,)."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8).ravel(), count=count, bitorder="little").view(np.bool_)


@jit(nogil=True, skip_refcounts=True)
def _list_bits(words: Words, first: int, out: Int64s) -> None:
    """Write the numbers of the bits that are set in `words` (M,) to `out`, counted from `first`."""
    row = 0
    for word in range(len(words)):
        left = words[word]
        while left:
            out[row] = first + 64 * word + np.int64(popcount((left & -left) - np.uint64(1)))
            left &= left - np.uint64(1)
            row += 1
