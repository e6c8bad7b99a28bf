"""Item arrays: named arrays on disk with one row for each of some items, such as kept vectors.

An array is a row of `arrays`, with its settings, and blocks of rows. Item ids ascend from block to block. A row never
changes: it is removed with its item, and an array whose values are computed again is deleted and created again.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local.array_blocks import (
    ArrayBlock,
    ArrayBlockInfo,
    Rows,
    block_bytes,
    has_valid_types,
    parse_block,
    parse_ids,
    rows_per_block,
    serialize_block,
    stored_dtype,
)
from proxyhash.index.local.schema import array_block_checksum, row_checksum
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError

MAX_NAME = 1000  # characters of the name of an array


class ArrayInfo(NamedTuple):
    """Description of an array: its settings as JSON, when it was created, and the totals of its blocks."""

    settings_json: str
    generation: int  # in which it was created
    num_blocks: int = 0
    num_items: int = 0
    blocks_checksum: int = 0  # sum of the checksums of the descriptions of its blocks

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings."""
        return dict(json.loads(self.settings_json))


_ARRAY_COLUMNS = "name, settings, generation, num_blocks, num_items, blocks_checksum, checksum"
_INFO_COLUMNS = ", ".join((*ArrayBlockInfo._fields, "info_checksum"))
_OF_ARRAY = "FROM array_blocks WHERE array = ? AND generation = ? ORDER BY number"


def list_arrays(store: Store) -> dict[str, ArrayInfo]:
    """Return the description of every array by its name.

    Raises
    ------
    InputError
        If an array is missing or does not match its checksum.
    """
    with store.reading():
        rows, expected = store.rows(f"SELECT {_ARRAY_COLUMNS} FROM arrays ORDER BY name"), store.meta().arrays_checksum
    found = {row[0]: _check_array(store, *row) for row in rows}
    if sum(row[-1] for row in rows) != expected:
        store.raise_damaged("arrays are missing or out of date")
    return found


def _check_array(store: Store, *row: Any) -> ArrayInfo:
    info = parse_array(*row)
    if info is None:
        store.raise_damaged("the description of an array does not match its checksum")
    return info


def parse_array(name: Any, *row: Any) -> ArrayInfo | None:
    """Return the description of an array from the columns of its row, None if they do not match their checksum."""
    settings, *numbers, checksum = row
    has_types = isinstance(name, str) and isinstance(settings, str) and all(type(number) is int for number in numbers)
    if not has_types or row_checksum(name, settings, *numbers) != checksum or not _is_object(settings):
        return None
    return ArrayInfo(settings, *numbers)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def count_rows(store: Store, name: str) -> int:
    """Return how many items have a row in an array; 0 if there is no such array."""
    info = list_arrays(store).get(name)
    return 0 if info is None else info.num_items


def array_settings(store: Store, name: str) -> dict[str, Any]:
    """Return the settings of an array; an InputError if there is no such array."""
    info = list_arrays(store).get(name)
    if info is None:
        raise InputError(f"The index has no array {name!r}.")
    return info.settings


def set_settings(store: Store, name: str, settings: Mapping[str, Any]) -> None:
    """Change the settings of an array, which are values of JSON; create it if it does not exist. In a transaction."""
    if not 0 < len(name) <= MAX_NAME:
        raise InputError(f"The name of an array has 1 to {MAX_NAME:,} characters.")
    info = list_arrays(store).get(name, ArrayInfo("", store.generation))
    text = json.dumps(dict(settings), ensure_ascii=False, separators=(",", ":"))
    if text != info.settings_json:
        _write_info(store, name, info._replace(settings_json=text))


def define_array(store: Store, name: str, like: ArrayInfo) -> None:
    """Create an array without rows that has the settings and generation of another one, or give it these settings."""
    info = list_arrays(store).get(name, ArrayInfo("", like.generation))
    _write_info(store, name, info._replace(settings_json=like.settings_json))


def _write_info(store: Store, name: str, info: ArrayInfo) -> None:
    """Write the description of an array over the one of the same name."""
    old = store.value("SELECT checksum FROM arrays WHERE name = ?", name) or 0
    new = row_checksum(name, *info)
    store.run(f"INSERT OR REPLACE INTO arrays({_ARRAY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", name, *info, new)
    store.set_meta(arrays_checksum=store.meta().arrays_checksum + new - old)


def delete_array(store: Store, name: str) -> None:
    """Delete an array with all its rows, if it exists."""
    for (checksum,) in store.rows("SELECT checksum FROM arrays WHERE name = ?", name):
        store.run("DELETE FROM array_blocks WHERE array = ?", name)
        store.run("DELETE FROM arrays WHERE name = ?", name)
        store.set_meta(arrays_checksum=store.meta().arrays_checksum - checksum)


def list_array_blocks(store: Store, name: str) -> dict[int, ArrayBlockInfo]:
    """Return the description of every block of an array by its number, without reading rows; nothing without an array.

    Raises
    ------
    InputError
        If a block is missing or does not match its checksum.
    """
    with store.reading():
        array = list_arrays(store).get(name)
        if array is None:
            return {}
        statement = f"SELECT length(item_ids), length(data), number, {_INFO_COLUMNS} {_OF_ARRAY}"
        rows = store.rows(statement, name, array.generation)
    found = {row[2]: _check_info(store, name, array.generation, *row[2:]) for row in rows}
    totals = len(found), sum(info.num_items for info in found.values()), sum(row[-1] for row in rows)
    if totals != (array.num_blocks, array.num_items, array.blocks_checksum):
        store.raise_damaged(f"blocks of the array {name!r} are missing or out of date")
    for ids_bytes, num_bytes, number, *_ in rows:  # before anybody allocates memory for them
        if (ids_bytes, num_bytes) != block_bytes(found[number]):
            _raise_damaged_block(store, name, number)
    return found


def _check_info(store: Store, name: str, generation: int, number: int, *row: Any) -> ArrayBlockInfo:
    *info, checksum = row
    if array_block_checksum(name, generation, number, *info) != checksum or not has_valid_types(info):
        store.raise_damaged(f"the description of block {number} of the array {name!r} does not match its checksum")
    return ArrayBlockInfo(*info)


def read_array_blocks(store: Store, name: str, numbers: Iterable[int]) -> Iterator[ArrayBlock]:
    """Yield blocks of an array, each verified by its checksums."""
    generation = _generation(store, name)
    return (_read_block(store, name, generation, number) for number in numbers)


def _generation(store: Store, name: str) -> int:
    return int(store.value("SELECT generation FROM arrays WHERE name = ?", name) or 0)


def _read_block(store: Store, name: str, generation: int, number: int) -> ArrayBlock:
    statement = f"SELECT {_INFO_COLUMNS}, item_ids, data FROM array_blocks WHERE array = ? AND generation = ? AND number = ?"
    rows = store.rows(statement, name, generation, number)
    if not rows:
        store.raise_damaged(f"block {number} of the array {name!r} is missing")
    *description, item_ids, data = rows[0]
    block = parse_block(_check_info(store, name, generation, number, *description), item_ids, data)
    if block is None:
        _raise_damaged_block(store, name, number)
    return block


def _raise_damaged_block(store: Store, name: str, number: int) -> NoReturn:
    store.raise_damaged(f"block {number} of the array {name!r} does not match its checksum")


def row_ids(store: Store, name: str) -> UInt32s:
    """Return the item ids of all rows of an array (n,), ascending, without reading rows."""
    with store.reading():
        infos, found = list_array_blocks(store, name), [np.zeros(0, np.uint32)]
        for number, blob in store.each(f"SELECT number, item_ids {_OF_ARRAY}", name, _generation(store, name)):
            item_ids = parse_ids(infos[number], blob)
            if item_ids is None:
                _raise_damaged_block(store, name, number)
            found.append(item_ids)
    return np.concatenate(found)


def read_array(store: Store, name: str) -> tuple[UInt32s, Rows]:
    """Return the item ids (n,), ascending, and the rows (n, width) of an array; both empty if it has none."""
    with store.reading():
        infos = list_array_blocks(store, name)
        count, (width, dtype) = sum(info.num_items for info in infos.values()), row_type(store, name, infos)
        item_ids, rows = np.empty(count, np.uint32), np.empty((count, width), dtype)
        end = 0
        for block in read_array_blocks(store, name, infos):
            item_ids[end : end + len(block)], rows[end : end + len(block)] = block.item_ids, block.rows
            end += len(block)
    return item_ids, rows


def row_type(store: Store, name: str, infos: Mapping[int, ArrayBlockInfo]) -> tuple[int, np.dtype[Any]]:
    """Return the width of the rows of an array, and a type for all of them; 0 and uint8 without blocks."""
    widths = {info.width for info in infos.values()}
    if len(widths) > 1:
        store.raise_damaged(f"the rows of the array {name!r} differ in width")
    dtypes = {np.dtype(f"<{info.dtype}") for info in infos.values()}
    return max(widths, default=0), np.result_type(*dtypes) if dtypes else np.dtype(np.uint8)


def find_rows(store: Store, name: str, item_ids: UInt32s) -> Iterator[ArrayBlock]:
    """Yield the rows of some items, given by ascending ids, in an array; those without one are missing."""
    with store.reading():
        generation = _generation(store, name)
        for number, mine in _blocks_of(store, name, item_ids):
            block = _read_block(store, name, generation, number)
            yield block.select(np.isin(block.item_ids, mine, assume_unique=True))


def _blocks_of(store: Store, name: str, item_ids: UInt32s) -> Iterator[tuple[int, UInt32s]]:
    """Yield the numbers of blocks whose range has some of the ids, given ascending, and these."""
    for number, info in list_array_blocks(store, name).items():
        first, end = np.searchsorted(item_ids, [info.min_id, info.max_id + 1])
        if first < end:
            yield number, item_ids[first:end]


def append_rows(store: Store, name: str, item_ids: UInt32s, rows: Rows, settings: Mapping[str, Any] | None = None) -> None:
    """Append rows to an array: to its last block while that has room, then in new ones. In a transaction.

    Parameters
    ----------
    store
        The file of the index.
    name
        The array; it is created if it does not exist.
    item_ids
        Item ids (n,), ascending, and larger than all that have a row in the array.
    rows
        Their rows (n, width).
    settings
        New settings of the array.

    Raises
    ------
    InputError
        If an item id is not larger than those before, or rows of this type cannot be stored.
    """
    if settings is not None or name not in list_arrays(store):
        set_settings(store, name, settings or {})
    if not len(rows):
        return
    block = ArrayBlock(item_ids, rows.astype(stored_dtype(rows.dtype), copy=False))
    size, start = rows_per_block(rows.shape[1], rows.itemsize), 0
    generation = _generation(store, name)
    for number, *description in store.rows(f"SELECT number, {_INFO_COLUMNS} {_OF_ARRAY} DESC LIMIT 1", name, generation):
        info = _check_info(store, name, generation, number, *description)
        if item_ids[0] <= info.max_id:
            raise InputError(f"Rows of the array {name!r} must be added in the order of item ids.")
        if info.num_items < size and (info.width, info.dtype) == (rows.shape[1], block.rows.dtype.str[1:]):
            start = size - info.num_items
            last = _read_block(store, name, generation, number)
            write_array_block(store, name, number, last.append(block.select(slice(start))))
    for first in range(start, len(block), size):
        number = 1 + int(store.value("SELECT max(number) FROM array_blocks") or 0)
        write_array_block(store, name, number, block.select(slice(first, first + size)))


def write_array_block(store: Store, name: str, number: int, block: ArrayBlock) -> None:
    """Write a block over the one of the same number; an empty one is deleted."""
    delete_array_block(store, name, number)
    if not len(block):
        return
    info, item_ids, data = serialize_block(block)
    generation = _generation(store, name)
    checksum = array_block_checksum(name, generation, number, *info)
    values = (number, *info, checksum, item_ids, data, name, generation)
    columns = f"number, {_INFO_COLUMNS}, item_ids, data, array, generation"
    store.run(f"INSERT INTO array_blocks({columns}) VALUES ({', '.join('?' * len(values))})", *values)
    _change_totals(store, name, 1, info.num_items, checksum)


def delete_array_block(store: Store, name: str, number: int) -> None:
    """Delete a block of an array, if it exists."""
    for count, checksum in store.rows("SELECT num_items, info_checksum FROM array_blocks WHERE number = ?", number):
        store.run("DELETE FROM array_blocks WHERE number = ?", number)
        _change_totals(store, name, -1, -count, -checksum)


def _change_totals(store: Store, name: str, blocks: int, items: int, checksum: int) -> None:
    """Count a block that was written or deleted in the description of its array."""
    info = _check_array(store, *store.rows(f"SELECT {_ARRAY_COLUMNS} FROM arrays WHERE name = ?", name)[0])
    changed = info._replace(
        num_blocks=info.num_blocks + blocks,
        num_items=info.num_items + items,
        blocks_checksum=info.blocks_checksum + checksum,
    )
    _write_info(store, name, changed)


def remove_rows(store: Store, item_ids: UInt32s) -> None:
    """Rewrite the blocks of all arrays that hold rows of some items, given by ascending ids, without them."""
    for name in list_arrays(store):
        for number, mine in _blocks_of(store, name, item_ids):
            block = _read_block(store, name, _generation(store, name), number)
            left = ~np.isin(block.item_ids, mine)
            if not left.all():
                write_array_block(store, name, number, block.select(left))


def fill_blocks(store: Store) -> None:
    """Move rows of all arrays forward so that blocks are full; two blocks at a time are in memory."""
    for name in list_arrays(store):
        _fill_blocks(store, name)


def _fill_blocks(store: Store, name: str) -> None:
    """Fill the blocks of an array. They are written under numbers that were read before, of which there are enough."""
    numbers = list(list_array_blocks(store, name))
    targets, waiting = iter(numbers), None
    for number in numbers:
        block = _read_block(store, name, _generation(store, name), number)
        delete_array_block(store, name, number)
        size = rows_per_block(block.rows.shape[1], block.rows.itemsize)
        if waiting is not None and not (waiting.is_like(block) and len(block) <= size):
            write_array_block(store, name, next(targets), waiting)
            waiting = None
        if waiting is not None:
            block, waiting = waiting.append(block), None
            if len(block) > size:
                block, waiting = block.select(slice(0, size)), block.select(slice(size, None))
        if len(block) < size:
            waiting = block
        else:
            write_array_block(store, name, next(targets), block)
    if waiting is not None:
        write_array_block(store, name, next(targets), waiting)
