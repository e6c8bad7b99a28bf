"""Codes on disk: blocks of positions, groups and packed codes, each with a checksum, so that millions load in a moment."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.item_ids import Starts
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError

BLOCK = 16_384  # codes: a few hundred rows for ten millions, and little to write anew when one more is added

Numbers = NDArray[np.uint16]


class Place(NamedTuple):
    """Which positions a block holds, and the generation in which it was last written."""

    version: int
    low: int
    high: int
    items: int


@dataclass(frozen=True, eq=False)
class Block:
    """n codes: `positions` (n,) ascending, `groups` (n,) and packed `codes` (n, bytes)."""

    positions: Starts
    groups: Numbers
    codes: Packed

    def __len__(self) -> int:
        """Return n."""
        return len(self.positions)

    def words(self) -> Words:
        """Return the codes as words (W, n)."""
        return to_words(self.codes)

    def some(self, which: NDArray[np.bool_] | slice) -> "Block":
        """Return some of the codes."""
        return Block(self.positions[which], self.groups[which], self.codes[which])

    def with_groups(self, groups: Numbers) -> "Block":
        """Return the same codes in other groups."""
        return Block(self.positions, groups, self.codes)


def joined(blocks: list[Block]) -> Block:
    """Return all codes of several blocks in one."""
    return Block(
        np.concatenate([block.positions for block in blocks]),
        np.concatenate([block.groups for block in blocks]),
        np.concatenate([block.codes for block in blocks]),
    )


def places(store: Store, edition: int) -> dict[int, Place]:
    """Return where every block's positions lie, without reading codes."""
    rows = store.rows("SELECT number, version, low, high, count FROM blocks WHERE edition = ? ORDER BY number", edition)
    return {number: Place(*rest) for number, *rest in rows}


def read_block(store: Store, edition: int, number: int) -> Block:
    """Return one block."""
    return next(read_blocks(store, edition, [number]))


def read_blocks(store: Store, edition: int, numbers: list[int]) -> Iterator[Block]:
    """Yield blocks, each checked against its checksum."""
    width = (store.value("SELECT bits FROM editions WHERE number = ?", edition) + 7) // 8
    statement = "SELECT count, checksum, groups, positions, codes FROM blocks WHERE edition = ? AND number = ?"
    for number in numbers:
        for count, checksum, *parts in store.rows(statement, edition, number):
            if _checksum(*parts) != checksum or [len(part) for part in parts] != [2 * count, 4 * count, width * count]:
                raise InputError(f"{store.path} is damaged: block {number} does not match its checksum.")
            groups, positions, codes = parts
            yield Block(
                np.frombuffer(positions, "<u4"),
                np.frombuffer(groups, "<u2"),
                np.frombuffer(codes, np.uint8).reshape(count, width),
            )


def group_sizes(store: Store, edition: int, groups: int) -> NDArray[np.int64]:
    """Return how many codes fall to each group; codes are not read for it."""
    sizes = np.zeros(groups, np.int64)
    for (numbers,) in store.each("SELECT groups FROM blocks WHERE edition = ?", edition):
        found = np.bincount(np.frombuffer(numbers, "<u2"), minlength=groups)
        if len(found) > groups:
            raise InputError(f"{store.path} is damaged: a code belongs to a group that does not exist.")
        sizes += found
    return sizes


def write_block(store: Store, edition: int, number: int, block: Block, version: int, *, keep_empty: bool = False) -> None:
    """Write a block in the place of the one that was there; an empty one is deleted, unless it is a mark of work done."""
    store.run("DELETE FROM blocks WHERE edition = ? AND number = ?", edition, number)
    if not len(block) and not keep_empty:
        return
    parts = (block.groups.astype("<u2").tobytes(), block.positions.astype("<u4").tobytes(), block.codes.tobytes())
    low, high = (int(block.positions[0]), int(block.positions[-1])) if len(block) else (0, 0)
    facts = (edition, number, version, len(block), low, high, _checksum(*parts))
    store.run("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *facts, *parts)


def append(store: Store, edition: int, block: Block, version: int) -> None:
    """Add codes behind the last: to its block while that has room, then to new ones."""
    last = store.rows("SELECT number, count FROM blocks WHERE edition = ? ORDER BY number DESC LIMIT 1", edition)
    number = last[0][0] + 1 if last else 0
    if last and last[0][1] < BLOCK:
        number -= 1
        block = joined([read_block(store, edition, number), block])
    for first in range(0, len(block), BLOCK):
        write_block(store, edition, number, block.some(slice(first, first + BLOCK)), version)
        number += 1


def remove(store: Store, edition: int, positions: Starts, version: int) -> None:
    """Write the blocks that hold some positions anew without them."""
    for number, place in places(store, edition).items():
        mine = positions[(positions >= place.low) & (positions <= place.high)]
        if len(mine):
            block = read_block(store, edition, number)
            write_block(store, edition, number, block.some(~np.isin(block.positions, mine)), version)


def _checksum(groups: bytes, positions: bytes, codes: bytes) -> int:
    return zlib.crc32(codes, zlib.crc32(positions, zlib.crc32(groups)))
