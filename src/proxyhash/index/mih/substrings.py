"""Substrings of codes: their number, their bits and the memory of their tables."""

import math
from dataclasses import dataclass

import numpy as np

from proxyhash.index.item_ids import Int64s

MAX_LENGTH = 24  # bits of a substring: the offsets of a table have 4 bytes for each of its 2^24 values, 67 MB
MAX_TABLES = 16  # 12 bytes a code each
_MIN_LENGTH = 4
_CODES_PER_VALUE = 16  # a bucket that is read costs as much as comparing so many codes


@dataclass(frozen=True, eq=False)
class Substrings:
    """Disjoint substrings of codes, the longest first: `starts` (m,) is the first bit of each, `lengths` (m,) its bits."""

    starts: Int64s
    lengths: Int64s

    def __len__(self) -> int:
        """Return m."""
        return len(self.starts)

    def memory(self, count: int, bits: int) -> int:
        """Return the bytes that the tables of `count` codes take: offsets, entries, item ids, and rows of long codes."""
        offsets = 4 * int((2**self.lengths + 1).sum())
        rows = 8 * -(-bits // 64) if bits > 64 else 0
        return offsets + count * (12 * len(self) + 4 + rows)


def choose_substrings(bits: int, count: int) -> Substrings:
    """Return substrings of such a length that each value has about `_CODES_PER_VALUE` codes, if codes are uniform.

    The substrings of short codes cover all bits. Long codes have `MAX_TABLES` substrings, which leave bits out. The
    pigeonhole principle holds for them too: a code within a radius of m r + m - 1 has a substring within r.

    Examples
    --------
    >>> choose_substrings(64, 10_000_000).lengths.tolist()
    [22, 21, 21]
    """
    target = min(MAX_LENGTH, max(_MIN_LENGTH, round(math.log2(max(2, count / _CODES_PER_VALUE)))))
    number = max(-(-bits // MAX_LENGTH), round(bits / target), 1)
    if number > MAX_TABLES:
        starts = np.arange(MAX_TABLES) * (bits // MAX_TABLES)
        return Substrings(starts, np.full(MAX_TABLES, min(target, bits // MAX_TABLES)))
    lengths = bits // number + (np.arange(number) < bits % number)
    return Substrings(np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
