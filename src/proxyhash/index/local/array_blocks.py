"""Blocks of item arrays: rows of some items, as bytes with checksums."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import UInt32s
from proxyhash.utils.errors import InputError

BYTES_PER_BLOCK = 1 << 20  # a few thousand blocks for a million vectors, and little to rewrite when one more is added
ROWS_PER_BLOCK = 16_384  # at most, as many as a block of codes has
DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")  # all little-endian

Rows = NDArray[Any]
"""Rows (n, width) of one of `DTYPES`."""


class ArrayBlockInfo(NamedTuple):
    """Description of a block: its number of rows, its range of item ids, the width and type of its rows."""

    num_items: int
    min_id: int
    max_id: int
    width: int
    dtype: str
    ids_checksum: int
    checksum: int  # of the rows


@dataclass(frozen=True, eq=False)
class ArrayBlock:
    """n rows of an array: `item_ids` (n,) ascending, and `rows` (n, width)."""

    item_ids: UInt32s
    rows: Rows

    def __len__(self) -> int:
        """Return n."""
        return len(self.item_ids)

    def select(self, chosen: NDArray[np.bool_] | slice) -> "ArrayBlock":
        """Return some of the rows."""
        return ArrayBlock(self.item_ids[chosen], self.rows[chosen])

    def append(self, other: "ArrayBlock") -> "ArrayBlock":
        """Return the rows of both blocks."""
        return ArrayBlock(np.concatenate([self.item_ids, other.item_ids]), np.concatenate([self.rows, other.rows]))

    def is_like(self, other: "ArrayBlock") -> bool:
        """Return whether the rows of another block have the same width and type."""
        return self.rows.dtype == other.rows.dtype and self.rows.shape[1] == other.rows.shape[1]


def rows_per_block(width: int, itemsize: int) -> int:
    """Return how many rows a full block has."""
    return max(1, min(ROWS_PER_BLOCK, BYTES_PER_BLOCK // (width * itemsize)))


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which rows are stored: the same, little-endian.

    Raises
    ------
    InputError
        If rows of this type cannot be stored.

    Examples
    --------
    >>> stored_dtype(np.dtype(">f4")).str
    '<f4'
    """
    found = dtype.newbyteorder("<")
    if found.str[1:] not in DTYPES:
        raise InputError(f"An array of the type {dtype} cannot be stored in an index; use one of {', '.join(DTYPES)}.")
    return found


def has_valid_types(info: Sequence[Any]) -> bool:
    """Return whether the columns of a description can be one: SQLite stores values of any type in any column."""
    *numbers, dtype, first, second = info
    is_positive = all(type(number) is int for number in numbers) and info[0] > 0 and info[3] > 0
    return is_positive and dtype in DTYPES and type(first) is int and type(second) is int


def serialize_block(block: ArrayBlock) -> tuple[ArrayBlockInfo, bytes, bytes]:
    """Return the description of a block, its item ids and its rows."""
    dtype = stored_dtype(block.rows.dtype)
    item_ids, data = block.item_ids.astype("<u4").tobytes(), block.rows.astype(dtype, copy=False).tobytes()
    first, last, checksums = int(block.item_ids[0]), int(block.item_ids[-1]), (zlib.crc32(item_ids), zlib.crc32(data))
    return ArrayBlockInfo(len(block), first, last, block.rows.shape[1], dtype.str[1:], *checksums), item_ids, data


def block_bytes(info: ArrayBlockInfo) -> tuple[int, int]:
    """Return how many bytes the item ids and the rows of a block have."""
    return 4 * info.num_items, info.num_items * info.width * int(info.dtype[1])


def parse_ids(info: ArrayBlockInfo, item_ids: Any) -> UInt32s | None:
    """Return the item ids of a block from its column, None if they do not match its description."""
    is_whole = isinstance(item_ids, bytes) and len(item_ids) == block_bytes(info)[0]
    return np.frombuffer(item_ids, "<u4") if is_whole and zlib.crc32(item_ids) == info.ids_checksum else None


def parse_block(info: ArrayBlockInfo, item_ids: Any, data: Any) -> ArrayBlock | None:
    """Return a block from its columns, None if they do not match its description."""
    ids = parse_ids(info, item_ids)
    is_whole = isinstance(data, bytes) and len(data) == block_bytes(info)[1]
    if ids is None or not is_whole or zlib.crc32(data) != info.checksum:
        return None
    return ArrayBlock(ids, np.frombuffer(data, f"<{info.dtype}").reshape(info.num_items, info.width))
