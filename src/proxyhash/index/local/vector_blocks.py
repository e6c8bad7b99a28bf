"""Blocks of kept vectors: raw vectors of items on disk, each block with checksums, for a later model to encode them."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.schema import row_checksum
from proxyhash.index.local.store import Store

BYTES_PER_BLOCK = 1 << 20  # a few thousand rows for a million vectors, and little to rewrite when one more is added
DTYPES = ("f2", "f4")  # float16 and float32, little-endian

Floats = NDArray[Any]
"""Vectors (n, width) of float16 or float32."""


class VectorBlockInfo(NamedTuple):
    """Description of a block: its number of vectors, its range of item ids, the width and type of its vectors."""

    num_vectors: int
    min_id: int
    max_id: int
    width: int
    dtype: str
    ids_checksum: int
    checksum: int  # of the vectors


@dataclass(frozen=True, eq=False)
class VectorBlock:
    """n vectors: `item_ids` (n,) ascending, and `vectors` (n, width)."""

    item_ids: UInt32s
    vectors: Floats

    def __len__(self) -> int:
        """Return n."""
        return len(self.item_ids)

    def select(self, rows: NDArray[np.bool_] | slice) -> "VectorBlock":
        """Return some of the vectors."""
        return VectorBlock(self.item_ids[rows], self.vectors[rows])


_INFO_COLUMNS = ", ".join((*VectorBlockInfo._fields, "info_checksum"))


def vectors_per_block(width: int, itemsize: int) -> int:
    """Return how many vectors a full block has."""
    return max(1, BYTES_PER_BLOCK // (width * itemsize))


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which vectors are kept: float16 as it is, everything else as float32."""
    return np.dtype("<f2" if dtype.itemsize == 2 else "<f4")


def list_vector_blocks(store: Store) -> dict[int, VectorBlockInfo]:
    """Return the description of every block by its number, without reading vectors.

    Raises
    ------
    InputError
        If a block is missing or does not match its checksum.
    """
    with store.reading():
        meta = store.meta()
        rows = store.rows(f"SELECT number, {_INFO_COLUMNS} FROM vectors ORDER BY number")
    found = {row[0]: _check_info(store, *row) for row in rows}
    totals = len(found), sum(info.num_vectors for info in found.values()), sum(row[-1] for row in rows)
    if totals != (meta.vector_blocks, meta.num_vectors, meta.vectors_checksum):
        store.raise_damaged("blocks of vectors are missing or out of date")
    return found


def _check_info(store: Store, number: int, *row: Any) -> VectorBlockInfo:
    *info, checksum = row
    if row_checksum(number, *info) != checksum or not has_valid_types(info):
        store.raise_damaged(f"the description of block {number} of vectors does not match its checksum")
    return VectorBlockInfo(*info)


def has_valid_types(info: Sequence[Any]) -> bool:
    """Return whether the columns of a description can be one: SQLite stores values of any type in any column."""
    *numbers, dtype, first, second = info
    is_positive = all(type(number) is int for number in numbers) and info[0] > 0 and info[3] > 0
    return is_positive and dtype in DTYPES and type(first) is int and type(second) is int


def read_vector_block(store: Store, number: int) -> VectorBlock:
    """Return one block, verified by its checksums."""
    rows = store.rows(f"SELECT {_INFO_COLUMNS}, item_ids, vectors FROM vectors WHERE number = ?", number)
    if not rows:
        store.raise_damaged(f"block {number} of vectors is missing")
    *description, item_ids, vectors = rows[0]
    block = parse_block(_check_info(store, number, *description), item_ids, vectors)
    if block is None:
        store.raise_damaged(f"block {number} of vectors does not match its checksum")
    return block


def parse_block(info: VectorBlockInfo, item_ids: Any, vectors: Any) -> VectorBlock | None:
    """Return a block from its columns, None if they do not match its description."""
    dtype = np.dtype(f"<{info.dtype}")
    sizes = [4 * info.num_vectors, info.num_vectors * info.width * dtype.itemsize]
    if [len(part) if isinstance(part, bytes) else None for part in (item_ids, vectors)] != sizes:
        return None
    if zlib.crc32(item_ids) != info.ids_checksum or zlib.crc32(vectors) != info.checksum:
        return None
    return VectorBlock(np.frombuffer(item_ids, "<u4"), np.frombuffer(vectors, dtype).reshape(info.num_vectors, info.width))


def kept_ids(store: Store) -> UInt32s:
    """Return the item ids of all kept vectors, ascending, without reading vectors."""
    with store.reading():
        infos = list_vector_blocks(store)
        found = [np.zeros(0, np.uint32)]
        for number, item_ids in store.each("SELECT number, item_ids FROM vectors ORDER BY number"):
            info = infos[number]
            is_whole = isinstance(item_ids, bytes) and len(item_ids) == 4 * info.num_vectors
            if not is_whole or zlib.crc32(item_ids) != info.ids_checksum:
                store.raise_damaged(f"block {number} of vectors does not match its checksum")
            found.append(np.frombuffer(item_ids, "<u4"))
    return np.concatenate(found)


def find_vectors(store: Store, item_ids: UInt32s) -> Iterator[VectorBlock]:
    """Yield the kept vectors of some items, given by ascending ids; those without one are missing."""
    for number, info in list_vector_blocks(store).items():
        first, end = np.searchsorted(item_ids, [info.min_id, info.max_id + 1])
        if first < end:
            block = read_vector_block(store, number)
            yield block.select(np.isin(block.item_ids, item_ids[first:end], assume_unique=True))


def append_vectors(store: Store, item_ids: UInt32s, vectors: Floats) -> None:
    """Keep vectors whose item ids are larger than all before: in the last block while that has room, then in new ones."""
    last = store.rows(f"SELECT number, {_INFO_COLUMNS} FROM vectors ORDER BY number DESC LIMIT 1")
    number, dtype = last[0][0] + 1 if last else 0, kept_dtype(vectors.dtype)
    size, start = vectors_per_block(vectors.shape[1], dtype.itemsize), 0
    if last and len(vectors):
        info = _check_info(store, *last[0])
        if (info.width, info.dtype) == (vectors.shape[1], dtype.str[1:]) and info.num_vectors < size:
            number, start = number - 1, min(size - info.num_vectors, len(vectors))
            old, new = read_vector_block(store, number), np.asarray(vectors[:start], dtype)
            joined = VectorBlock(np.concatenate([old.item_ids, item_ids[:start]]), np.concatenate([old.vectors, new]))
            write_vector_block(store, number, joined)
            number += 1
    for first in range(start, len(vectors), size):
        part = slice(first, first + size)
        write_vector_block(store, number, VectorBlock(item_ids[part], np.asarray(vectors[part], dtype)))
        number += 1


def write_vector_block(store: Store, number: int, block: VectorBlock) -> None:
    """Write a block over the one of the same number; an empty one is deleted."""
    delete_vector_block(store, number)
    if not len(block):
        return
    dtype = kept_dtype(block.vectors.dtype)
    item_ids, vectors = block.item_ids.astype("<u4").tobytes(), block.vectors.astype(dtype, copy=False).tobytes()
    info = VectorBlockInfo(
        len(block),
        int(block.item_ids[0]),
        int(block.item_ids[-1]),
        block.vectors.shape[1],
        dtype.str[1:],
        zlib.crc32(item_ids),
        zlib.crc32(vectors),
    )
    insert_vector_block(store, number, info, item_ids, vectors)


def insert_vector_block(store: Store, number: int, info: VectorBlockInfo, item_ids: bytes, vectors: bytes) -> None:
    """Store a block under a number that is free."""
    checksum = row_checksum(number, *info)
    values = (number, *info, checksum, item_ids, vectors)
    columns = f"number, {_INFO_COLUMNS}, item_ids, vectors"
    store.run(f"INSERT INTO vectors({columns}) VALUES ({', '.join('?' * len(values))})", *values)
    _change_totals(store, 1, info.num_vectors, checksum)


def delete_vector_block(store: Store, number: int) -> None:
    """Delete a block, if it exists."""
    for count, checksum in store.rows("SELECT num_vectors, info_checksum FROM vectors WHERE number = ?", number):
        store.run("DELETE FROM vectors WHERE number = ?", number)
        _change_totals(store, -1, -count, -checksum)


def remove_vectors(store: Store, item_ids: UInt32s) -> None:
    """Rewrite the blocks that hold vectors of some items, given by ascending ids, without them."""
    if not store.meta().num_vectors:
        return
    for number, info in list_vector_blocks(store).items():
        first, end = np.searchsorted(item_ids, [info.min_id, info.max_id + 1])
        if first < end:
            block = read_vector_block(store, number)
            left = ~np.isin(block.item_ids, item_ids[first:end])
            if not left.all():
                write_vector_block(store, number, block.select(left))


def fill_vector_blocks(store: Store) -> None:
    """Move vectors forward so that blocks are full; two blocks at a time are in memory.

    Blocks are written under numbers that were read before, since no more are written than were read.
    """
    waiting: VectorBlock | None = None
    target = 0
    for number in list(list_vector_blocks(store)):
        block = read_vector_block(store, number)
        delete_vector_block(store, number)
        size = vectors_per_block(block.vectors.shape[1], block.vectors.itemsize)
        if waiting is not None and not (_fits(waiting, block) and len(block) <= size):
            write_vector_block(store, target, waiting)
            waiting, target = None, target + 1
        if waiting is not None:
            item_ids = np.concatenate([waiting.item_ids, block.item_ids])
            block, waiting = VectorBlock(item_ids, np.concatenate([waiting.vectors, block.vectors])), None
            if len(block) > size:
                block, waiting = block.select(slice(0, size)), block.select(slice(size, None))
        if len(block) < size:
            waiting = block
        else:
            write_vector_block(store, target, block)
            target += 1
    if waiting is not None:
        write_vector_block(store, target, waiting)


def _fits(one: VectorBlock, other: VectorBlock) -> bool:
    return one.vectors.dtype == other.vectors.dtype and one.vectors.shape[1] == other.vectors.shape[1]


def _change_totals(store: Store, blocks: int, vectors: int, checksum: int) -> None:
    """Count a block that was written or deleted in `meta`."""
    meta = store.meta()
    store.set_meta(
        vector_blocks=meta.vector_blocks + blocks,
        num_vectors=meta.num_vectors + vectors,
        vectors_checksum=meta.vectors_checksum + checksum,
    )
