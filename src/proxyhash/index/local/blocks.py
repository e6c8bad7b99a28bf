"""Blocks: codes on disk with their item ids and clusters, each with a checksum, so that millions load quickly."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.item_ids import ClusterIds, UInt32s
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import IndexNames as Sql

CODES_PER_BLOCK = 16_384  # a few hundred rows for ten million codes, and little to rewrite when one more is added


class BlockInfo(NamedTuple):
    """Description of a block: the generation in which it was written, its range of item ids, its number of codes."""

    generation: int
    min_id: int
    max_id: int
    size: int


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

    def select(self, rows: NDArray[np.bool_] | slice) -> "Block":
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


def list_blocks(store: Store, version: int) -> dict[int, BlockInfo]:
    """Return the description of every block of a version by its number, without reading codes."""
    columns = f"number, {Sql.GENERATION_WRITTEN}, {Sql.MIN_ID}, {Sql.MAX_ID}, count"
    rows = store.rows(f"SELECT {columns} FROM blocks WHERE {Sql.VERSION} = ? ORDER BY number", version)
    return {number: BlockInfo(*rest) for number, *rest in rows}


def count_codes(store: Store, version: int) -> int:
    """Return the number of codes of a version."""
    return int(store.value(f"SELECT coalesce(sum(count), 0) FROM blocks WHERE {Sql.VERSION} = ?", version))


def read_block(store: Store, version: int, number: int) -> Block:
    """Return one block."""
    return next(read_blocks(store, version, [number]))


def read_blocks(store: Store, version: int, numbers: list[int]) -> Iterator[Block]:
    """Yield blocks, each verified by its checksum."""
    width = (store.version_info(version).bits + 7) // 8
    columns = f"count, checksum, {Sql.CLUSTERS}, {Sql.ITEM_IDS}, codes"
    statement = f"SELECT {columns} FROM blocks WHERE {Sql.VERSION} = ? AND number = ?"
    for number in numbers:
        for count, checksum, *parts in store.rows(statement, version, number):
            if _checksum(*parts) != checksum or [len(part) for part in parts] != [2 * count, 4 * count, width * count]:
                raise InputError(f"{store.path} is damaged: block {number} does not match its checksum.")
            clusters, item_ids, codes = parts
            yield Block(
                np.frombuffer(item_ids, "<u4"),
                np.frombuffer(clusters, "<u2"),
                np.frombuffer(codes, np.uint8).reshape(count, width),
            )


def cluster_sizes(store: Store, version: int, clusters: int) -> NDArray[np.int64]:
    """Return the number of codes of each cluster, without reading codes."""
    sizes = np.zeros(clusters, np.int64)
    for (blob,) in store.each(f"SELECT {Sql.CLUSTERS} FROM blocks WHERE {Sql.VERSION} = ?", version):
        counts = np.bincount(np.frombuffer(blob, "<u2"), minlength=clusters)
        if len(counts) > clusters:
            raise InputError(f"{store.path} is damaged: a code belongs to a cluster that does not exist.")
        sizes += counts
    return sizes


def delete_block(store: Store, version: int, number: int) -> None:
    """Delete a block, if it exists."""
    store.run(f"DELETE FROM blocks WHERE {Sql.VERSION} = ? AND number = ?", version, number)


def write_block(store: Store, version: int, number: int, block: Block, generation: int, *, keep_empty: bool = False) -> None:
    """Write a block over the one of the same number; an empty one is deleted, unless `keep_empty` marks it as done."""
    delete_block(store, version, number)
    if not len(block) and not keep_empty:
        return
    parts = (block.clusters.astype("<u2").tobytes(), block.item_ids.astype("<u4").tobytes(), block.codes.tobytes())
    low, high = (int(block.item_ids[0]), int(block.item_ids[-1])) if len(block) else (0, 0)
    info = (version, number, generation, len(block), low, high, _checksum(*parts))
    store.run("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *info, *parts)


def append_codes(store: Store, version: int, block: Block, generation: int) -> None:
    """Add codes after the last: to its block while that has room, then to new ones."""
    statement = f"SELECT number, count FROM blocks WHERE {Sql.VERSION} = ? ORDER BY number DESC LIMIT 1"
    last = store.rows(statement, version)
    number = last[0][0] + 1 if last else 0
    if last and last[0][1] < CODES_PER_BLOCK:
        number -= 1
        block = concat_blocks([read_block(store, version, number), block])
    for first in range(0, len(block), CODES_PER_BLOCK):
        write_block(store, version, number, block.select(slice(first, first + CODES_PER_BLOCK)), generation)
        number += 1


def remove_codes(store: Store, version: int, item_ids: UInt32s, generation: int) -> None:
    """Rewrite the blocks that hold some item ids without them."""
    for number, info in list_blocks(store, version).items():
        mine = item_ids[(item_ids >= info.min_id) & (item_ids <= info.max_id)]
        if len(mine):
            block = read_block(store, version, number)
            write_block(store, version, number, block.select(~np.isin(block.item_ids, mine)), generation)


def _checksum(clusters: bytes, item_ids: bytes, codes: bytes) -> int:
    return zlib.crc32(codes, zlib.crc32(item_ids, zlib.crc32(clusters)))
