"""Columns of items on disk: an item array for each, and the texts that their codes stand for."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.columns import Column, ColumnType, from_microseconds
from proxyhash.index.item_ids import UInt32s
from proxyhash.index.local import item_arrays, items, texts
from proxyhash.index.local.item_arrays import ArrayInfo
from proxyhash.index.local.items import Item
from proxyhash.index.local.store import Store
from proxyhash.utils.errors import InputError

COLUMN = "column:"  # before the name of a column in the name of its array
_TYPE, _DTYPE = "type", "dtype"  # settings of the array
_WHOLE = ("i1", "i2", "i4", "i8")  # types of whole numbers; a column has the least that holds all its values
_CODES = ("u1", "u2", "u4")
_REAL = "f8"
_TYPES: tuple[ColumnType, ...] = ("number", "text", "date")
_EXACT = 2**53  # whole numbers up to this are exact as float64


def column_types(store: Store) -> dict[str, ColumnType]:
    """Return the type of every column by its name, in the order of names."""
    return {name: _type_of(store, info) for name, info in _infos(store).items()}


def fraction_columns(store: Store) -> frozenset[str]:
    """Return the names of columns whose numbers are not all whole."""
    return frozenset(name for name, info in _infos(store).items() if info.settings.get(_DTYPE) == _REAL)


def _infos(store: Store) -> dict[str, ArrayInfo]:
    arrays = item_arrays.list_arrays(store)
    return {name.removeprefix(COLUMN): info for name, info in arrays.items() if name.startswith(COLUMN)}


def _type_of(store: Store, info: ArrayInfo) -> ColumnType:
    found: ColumnType = info.settings.get(_TYPE)  # type: ignore[assignment]
    if found not in _TYPES:
        store.raise_damaged("a column has no known type")
    return found


def append_columns(store: Store, item_ids: UInt32s, columns: Mapping[str, Column]) -> None:
    """Store the columns of new items (n,), whose ids are larger than all before. In a transaction.

    Raises
    ------
    InputError
        If a column has another type than before.
    """
    infos = _infos(store)
    for name, column in columns.items():
        if not column.known.any():
            continue
        if name in infos and _type_of(store, infos[name]) != column.type:
            kind = _type_of(store, infos[name])
            raise InputError(f"{name} is a column of {kind}s; give it {kind}s, not {column.type}s.")
        values = column.values[column.known]
        if column.type == "text":
            values = texts.add_texts(store, values.tolist())
        dtype = _choose_dtype(values, infos.get(name))
        if dtype == _REAL and name in infos and infos[name].settings[_DTYPE] != _REAL:
            _rewrite_as_real(store, name)
        rows = (_to_real(name, values) if dtype == _REAL else values.astype(dtype))[:, None]
        item_arrays.append_rows(store, COLUMN + name, item_ids[column.known], rows, {_TYPE: column.type, _DTYPE: dtype})


def _choose_dtype(values: NDArray[Any], info: ArrayInfo | None) -> str:
    """Return the type of numpy in which a column stores its values, after new ones (n,) were added: never a smaller one."""
    before = None if info is None else str(info.settings[_DTYPE])
    if values.dtype.kind == "f":
        is_whole = before in _WHOLE and (values % 1 == 0).all() and (np.abs(values) <= _EXACT).all()
        if not is_whole:
            return _REAL
    if before == _REAL:
        return _REAL
    dtypes = _CODES if values.dtype.kind == "u" else _WHOLE
    bounds = [np.iinfo(dtype) for dtype in dtypes]
    fits = next(number for number, bound in enumerate(bounds) if bound.min <= values.min() and values.max() <= bound.max)
    return dtypes[max(fits, 0 if before is None else dtypes.index(before))]


def _rewrite_as_real(store: Store, name: str) -> None:
    """Store the whole numbers of a column as float64, because its first fraction will follow."""
    item_ids, rows = item_arrays.read_array(store, COLUMN + name)
    item_arrays.delete_array(store, COLUMN + name)
    settings = {_TYPE: "number", _DTYPE: _REAL}
    item_arrays.append_rows(store, COLUMN + name, item_ids, _to_real(name, rows), settings)


def _to_real(name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    if values.dtype.kind == "i" and ((values > _EXACT).any() or (values < -_EXACT).any()):
        raise InputError(f"The column {name} holds fractions and whole numbers beyond 2^53, which are not exact as floats.")
    return values.astype(np.float64)


def find_items(store: Store, item_ids: Iterable[int]) -> dict[int, Item]:
    """Return items by their ids, with their columns; those that do not exist are missing."""
    return add_columns(store, items.items_by_id(store, item_ids))


def add_columns(store: Store, found: Mapping[int, Item]) -> dict[int, Item]:
    """Return items by their ids with the values of their columns."""
    infos = _infos(store)
    if not infos or not found:
        return dict(found)
    item_ids = np.array(sorted(found), np.uint32)
    values: dict[int, dict[str, Any]] = {item_id: {} for item_id in found}
    for name, info in infos.items():
        for item_id, value in read_values(store, name, _type_of(store, info), item_ids).items():
            values[item_id][name] = value
    return {item_id: item._replace(columns=values[item_id]) for item_id, item in found.items()}


def read_values(store: Store, name: str, kind: ColumnType, item_ids: UInt32s) -> dict[int, Any]:
    """Return the values of a column as Python objects by the ids of items, given ascending; missing ones are absent."""
    ids: list[int] = []
    values: list[Any] = []
    for block in item_arrays.find_rows(store, COLUMN + name, item_ids):
        ids += block.item_ids.tolist()
        values += block.rows[:, 0].tolist()
    if kind == "text":
        known = texts.find_texts(store, values)
        values = [known[code] for code in values]
    elif kind == "date":
        values = [from_microseconds(value) for value in values]
    return dict(zip(ids, values, strict=True))


def used_texts(store: Store) -> UInt32s:
    """Return the codes of all texts that an item has, ascending."""
    kinds = column_types(store)
    found = [np.zeros(0, np.uint32)]
    for name in (name for name, kind in kinds.items() if kind == "text"):
        array = COLUMN + name
        for block in item_arrays.read_array_blocks(store, array, item_arrays.list_array_blocks(store, array)):
            found.append(np.unique(block.rows).astype(np.uint32))
    return np.unique(np.concatenate(found))


def drop_lost_texts(store: Store, codes: UInt32s) -> int:
    """Remove the values of columns whose texts are lost, and return how many; `codes` (n,) are those that are not."""
    lost = 0
    for name in (name for name, kind in column_types(store).items() if kind == "text"):
        item_ids, rows = item_arrays.read_array(store, COLUMN + name)
        known = np.isin(rows[:, 0] if rows.shape[1] else np.zeros(0, np.uint32), codes)
        if not known.all():
            settings = item_arrays.array_settings(store, COLUMN + name)
            item_arrays.delete_array(store, COLUMN + name)
            item_arrays.append_rows(store, COLUMN + name, item_ids[known], rows[known], settings)
            lost += int(np.count_nonzero(~known))
    return lost
