"""Blocks: codes on disk with their item ids and clusters, each with a checksum, so that millions load quickly."""

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.item_ids import ClusterIds, UInt32s
from proxyhash.index.local.schema import row_checksum
from proxyhash.index.local.store import Store

CODES_PER_BLOCK = 16_384  # a few hundred rows for ten million codes, and little to rewrite when one more is added


class BlockInfo(NamedTuple):
    """Description of a block: the generation in which it was written, its number of codes, its range of item ids."""

    generation: int
    size: int
    min_id: int
    max_id: int
    checksum: int  # of the codes, their clusters and item ids


@dataclass(frozen=True, eq=False)
class Block:
    """n codes: `item_ids` (n,) ascending, `clusters` (n,) and packed `codes` (n, bytes)."""

    item_ids: UInt32s
    clusters: ClusterIds
    codes: Packed

    def __len__(self) -> int:
        """Return n."""
        return len(self.item_ids)

    def words(self) -> Words:
        """Return the codes as words (W, n)."""
        return to_words(self.codes)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Block":
        """Return some of the codes."""
        return Block(self.item_ids[rows], self.clusters[rows], self.codes[rows])

    def with_clusters(self, clusters: ClusterIds) -> "Block":
        """Return the same codes in other clusters."""
        return replace(self, clusters=clusters)


def concat_blocks(blocks: list[Block]) -> Block:
    """Return all codes of several blocks in one."""
    return Block(
        np.concatenate([block.item_ids for block in blocks]),
        np.concatenate([block.clusters for block in blocks]),
        np.concatenate([block.codes for block in blocks]),
    )


_COLUMNS = "generation, count, min_id, max_id, checksum, info_checksum"


def list_blocks(store: Store, version: int) -> dict[int, BlockInfo]:
    """Return the description of every block of a version by its number, without reading codes.

    Raises
    ------
    InputError
        If a block is missing or does not match its checksum.
    """
    with store.reading():
        expected = store.version_info(version)
        rows = store.rows(f"SELECT number, {_COLUMNS} FROM blocks WHERE version = ? ORDER BY number", version)
    found = {row[0]: _check_info(store, version, *row) for row in rows}
    checksums = sum(row[-1] for row in rows)
    codes = sum(info.size for info in found.values())
    if (len(found), codes, checksums) != (expected.num_blocks, expected.num_codes, expected.blocks_checksum):
        store.raise_damaged("blocks of codes are missing or out of date")
    return found


def _check_info(store: Store, version: int, number: int, *row: int) -> BlockInfo:
    """Return the description of a block from its columns, if it matches its checksum."""
    *info, checksum = row
    if row_checksum(version, number, *info) != checksum:
        store.raise_damaged(f"the description of block {number} does not match its checksum")
    return BlockInfo(*info)


def count_codes(store: Store, version: int) -> int:
    """Return the number of codes of a version."""
    return store.version_info(version).num_codes


def read_block(store: Store, version: int, number: int) -> Block:
    """Return one block."""
    return next(read_blocks(store, version, [number]))


def read_blocks(store: Store, version: int, numbers: list[int]) -> Iterator[Block]:
    """Yield blocks, each verified by its checksum."""
    width = (store.version_info(version).bits + 7) // 8
    statement = f"SELECT {_COLUMNS}, clusters, item_ids, codes FROM blocks WHERE version = ? AND number = ?"
    for number in numbers:
        rows = store.rows(statement, version, number)
        if not rows:
            store.raise_damaged(f"block {number} is missing")
        *description, clusters, item_ids, codes = rows[0]
        info = _check_info(store, version, number, *description)
        parts = (clusters, item_ids, codes)
        sizes = [2 * info.size, 4 * info.size, width * info.size]
        if [len(part) if isinstance(part, bytes) else None for part in parts] != sizes or _checksum(*parts) != info.checksum:
            store.raise_damaged(f"block {number} does not match its checksum")
        yield Block(
            np.frombuffer(item_ids, "<u4"),
            np.frombuffer(clusters, "<u2"),
            np.frombuffer(codes, np.uint8).reshape(info.size, width),
        )


def cluster_sizes(store: Store, version: int, clusters: int) -> NDArray[np.int64]:
    """Return the number of codes of each cluster, without reading codes."""
    sizes = np.zeros(clusters, np.int64)
    for (blob,) in store.each("SELECT clusters FROM blocks WHERE version = ?", version):
        counts = np.bincount(np.frombuffer(blob, "<u2"), minlength=clusters)
        if len(counts) > clusters:
            store.raise_damaged("a code belongs to a cluster that does not exist")
        sizes += counts
    return sizes


def delete_block(store: Store, version: int, number: int) -> None:
    """Delete a block, if it exists."""
    statement = "SELECT count, info_checksum FROM blocks WHERE version = ? AND number = ?"
    for size, checksum in store.rows(statement, version, number):
        store.run("DELETE FROM blocks WHERE version = ? AND number = ?", version, number)
        _change_totals(store, version, -1, -size, -checksum)


def write_block(store: Store, version: int, number: int, block: Block, generation: int) -> None:
    """Write a block over the one of the same number; an empty one is deleted."""
    delete_block(store, version, number)
    if not len(block):
        return
    parts = (block.clusters.astype("<u2").tobytes(), block.item_ids.astype("<u4").tobytes(), block.codes.tobytes())
    info = BlockInfo(generation, len(block), int(block.item_ids[0]), int(block.item_ids[-1]), _checksum(*parts))
    checksum = row_checksum(version, number, *info)
    columns = f"version, number, {_COLUMNS}, clusters, item_ids, codes"
    values = (version, number, *info, checksum, *parts)
    store.run(f"INSERT INTO blocks({columns}) VALUES ({', '.join('?' * len(values))})", *values)
    _change_totals(store, version, 1, len(block), checksum)


def _change_totals(store: Store, version: int, blocks: int, codes: int, checksum: int) -> None:
    """Count a block that was written or deleted in the description of its version."""
    info = store.version_info(version)
    store.set_version(
        version,
        num_blocks=info.num_blocks + blocks,
        num_codes=info.num_codes + codes,
        blocks_checksum=info.blocks_checksum + checksum,
    )


def append_codes(store: Store, version: int, block: Block, generation: int) -> None:
    """Add codes after the last: to its block while that has room, then to new ones."""
    statement = "SELECT number, count FROM blocks WHERE version = ? ORDER BY number DESC LIMIT 1"
    last = store.rows(statement, version)
    number = last[0][0] + 1 if last else 0
    if last and last[0][1] < CODES_PER_BLOCK:
        number -= 1
        block = concat_blocks([read_block(store, version, number), block])
    for first in range(0, len(block), CODES_PER_BLOCK):
        write_block(store, version, number, block.select(slice(first, first + CODES_PER_BLOCK)), generation)
        number += 1


def merge_codes(store: Store, version: int, block: Block, generation: int) -> None:
    """Add codes whose item ids may lie between stored ones, so that ids ascend from block to block."""
    infos = list_blocks(store, version)
    numbers, max_ids = list(infos), [info.max_id for info in infos.values()]
    targets = np.searchsorted(np.array(max_ids, np.int64), block.item_ids)
    for target in np.unique(targets[targets < len(numbers)]):
        number = numbers[target]
        joined = concat_blocks([read_block(store, version, number), block.select(targets == target)])
        order = np.argsort(joined.item_ids)
        write_block(store, version, number, joined.select(order), generation)
    after = block.select(targets == len(numbers))
    if len(after):
        append_codes(store, version, after, generation)


def remove_codes(store: Store, version: int, item_ids: UInt32s, generation: int) -> None:
    """Rewrite the blocks that hold some item ids without them."""
    for number, info in list_blocks(store, version).items():
        mine = item_ids[(item_ids >= info.min_id) & (item_ids <= info.max_id)]
        if len(mine):
            block = read_block(store, version, number)
            write_block(store, version, number, block.select(~np.isin(block.item_ids, mine)), generation)


def coded_ids(store: Store, version: int) -> UInt32s:
    """Return the item ids of all codes of a version, ascending."""
    found = [block.item_ids for block in read_blocks(store, version, list(list_blocks(store, version)))]
    return np.concatenate([np.zeros(0, np.uint32), *found])


def codes_of(store: Store, version: int, item_ids: UInt32s) -> Packed:
    """Return the codes (n, bytes) of items, given by ascending ids; one without a code is damage."""
    infos = list_blocks(store, version)
    numbers = [
        number for number, info in infos.items() if np.diff(np.searchsorted(item_ids, [info.min_id, info.max_id + 1]))[0] > 0
    ]
    found = [block.select(np.isin(block.item_ids, item_ids)) for block in read_blocks(store, version, numbers)]
    codes = np.concatenate([block.codes for block in found]) if found else np.zeros((0, 0), np.uint8)
    if len(codes) != len(item_ids):
        store.raise_damaged(f"{len(item_ids) - len(codes):,} items have no code")
    return codes


def sample_ids(store: Store, version: int, count: int) -> list[int]:
    """Return the item ids of `count` random codes of a version in random order, of all if there are fewer."""
    infos = list_blocks(store, version)
    ends = np.cumsum([info.size for info in infos.values()], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    wanted = np.array(random.sample(range(total), min(count, total)), np.int64)
    numbers, owner = list(infos), np.searchsorted(ends, wanted, side="right")
    found = np.zeros(len(wanted), np.int64)
    for number in np.unique(owner):
        mine = owner == number
        block = read_block(store, version, numbers[number])
        found[mine] = block.item_ids[wanted[mine] - ends[number] + len(block)]
    return [int(item_id) for item_id in found]


def _checksum(clusters: bytes, item_ids: bytes, codes: bytes) -> int:
    return zlib.crc32(codes, zlib.crc32(item_ids, zlib.crc32(clusters)))
