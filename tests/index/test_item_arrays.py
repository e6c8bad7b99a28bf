"""Item arrays on disk: writing, reading, removing, copying and saving them."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.codes import clustered_codes, make_keys
from helpers.index_content import array_content
from proxyhash import InputError
from proxyhash.index.backup import backup, restore
from proxyhash.index.local import array_blocks, item_arrays, transactions
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.transactions import ItemBatch, add_batches
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.salvage import salvage
from proxyhash.utils.errors import DamagedError

PRICE, TITLE = "array:price", "array:title\nü"
ROWS = 10  # of a block


@pytest.fixture
def index(tmp_path: Path) -> Iterator[LocalIndex]:
    with patch.object(array_blocks, "ROWS_PER_BLOCK", ROWS), LocalIndex.open_folder(tmp_path / "i", bits=64) as opened:
        yield opened


def some_arrays(count: int, seed: int = 0) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    return {
        PRICE: random.normal(size=(count, 1)),
        TITLE: random.integers(0, 2**32, (count, 1), dtype=np.uint32),
        "refinement": random.integers(-128, 128, (count, 6), dtype=np.int8),
    }


def add(index: LocalIndex, count: int, first: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    batch = ItemBatch(index.store.codes_id, clustered_codes(count, 8, first), make_keys(count, first), arrays=arrays)
    add_batches(index.store, batch)


def as_lists(index: LocalIndex) -> dict[str, dict[int, Any]]:
    found = array_content(index)
    return {name: {item_id: (row.dtype.str, row.tolist()) for item_id, row in rows.items()} for name, rows in found.items()}


def filled(index: LocalIndex) -> dict[str, dict[int, Any]]:
    """Add items with arrays, some without one, replace and remove some; return what is left."""
    add(index, 47, 0, some_arrays(47))
    add(index, 20, 40, {PRICE: some_arrays(20, 1)[PRICE]})
    index.remove(make_keys(3, 12))
    with index.store.writing():
        item_arrays.set_settings(index.store, TITLE, {"type": "text", "values": ["ä", "b"]})
    return as_lists(index)


def test_rows_are_those_that_were_added(index: LocalIndex) -> None:
    arrays = some_arrays(47)
    add(index, 47, 0, arrays)
    for name, rows in arrays.items():
        item_ids, found = item_arrays.read_array(index.store, name)
        np.testing.assert_array_equal(item_ids, np.arange(47))
        np.testing.assert_array_equal(found, rows)
        assert found.dtype == rows.dtype
        np.testing.assert_array_equal(item_arrays.row_ids(index.store, name), np.arange(47))
        assert item_arrays.list_arrays(index.store)[name].num_blocks == 5
    assert verify(index).problems == ()


def test_removed_and_replaced_items_lose_their_rows_in_every_array(index: LocalIndex) -> None:
    kept = filled(index)
    left = {*range(40)} - {12, 13, 14}
    assert {name: set(rows) for name, rows in kept.items()} == {
        PRICE: left | {*range(47, 67)},
        TITLE: left,
        "refinement": left,
    }
    assert verify(index).problems == ()


def test_rows_of_some_items_are_found(index: LocalIndex) -> None:
    filled(index)
    wanted = np.array([0, 9, 10, 12, 39, 50, 66], np.uint32)
    found = list(item_arrays.find_rows(index.store, PRICE, wanted))
    ids = np.concatenate([block.item_ids for block in found])
    np.testing.assert_array_equal(ids, [0, 9, 10, 39, 50, 66])
    all_ids, rows = item_arrays.read_array(index.store, PRICE)
    np.testing.assert_array_equal(np.concatenate([block.rows for block in found]), rows[np.isin(all_ids, wanted)])


def test_absent_array_is_empty(index: LocalIndex) -> None:
    ids, rows = item_arrays.read_array(index.store, "absent")
    assert ids.shape == (0,)
    assert rows.shape == (0, 0)
    assert len(item_arrays.row_ids(index.store, "absent")) == item_arrays.count_rows(index.store, "absent") == 0
    assert not list(item_arrays.find_rows(index.store, "absent", np.zeros(1, np.uint32)))
    with pytest.raises(InputError, match="no array 'absent'"):
        item_arrays.array_settings(index.store, "absent")


def test_settings_are_stored_without_rows_and_with_them(index: LocalIndex) -> None:
    store = index.store
    with store.writing():
        item_arrays.set_settings(store, PRICE, {"type": "number"})
        item_arrays.append_rows(store, TITLE, np.zeros(0, np.uint32), np.zeros((0, 1), np.uint32), {"values": ["ü|"]})
    assert item_arrays.array_settings(store, PRICE) == {"type": "number"}
    assert item_arrays.array_settings(store, TITLE) == {"values": ["ü|"]}
    add(index, 5, 0, {PRICE: np.ones((5, 1))})
    assert item_arrays.array_settings(store, PRICE) == {"type": "number"}
    assert item_arrays.count_rows(store, PRICE) == 5


@pytest.mark.parametrize("rows", [np.array([["text"]]), np.zeros((1, 1), bool), np.zeros((1, 1), complex)])
def test_types_that_cannot_be_stored_are_refused(index: LocalIndex, rows: NDArray[Any]) -> None:
    with pytest.raises(InputError, match="cannot be stored"):
        add(index, 1, 0, {PRICE: rows})
    assert len(index) == 0


def test_rows_out_of_order_and_invalid_names_are_refused(index: LocalIndex) -> None:
    add(index, 5, 0, {PRICE: np.ones((5, 1))})
    with pytest.raises(InputError, match="in the order of item ids"), index.store.writing():
        item_arrays.append_rows(index.store, PRICE, np.array([4], np.uint32), np.ones((1, 1)))
    for name in ("", "x" * 1001):
        with pytest.raises(InputError, match="name of an array"), index.store.writing():
            item_arrays.set_settings(index.store, name, {})
    assert verify(index).problems == ()


def test_deleted_array_leaves_the_others(index: LocalIndex) -> None:
    kept = filled(index)
    with index.store.writing():
        item_arrays.delete_array(index.store, PRICE)
        item_arrays.delete_array(index.store, "absent")
    assert as_lists(index) == {name: rows for name, rows in kept.items() if name != PRICE}
    assert verify(index).problems == ()


def test_compact_fills_the_blocks_of_every_array(index: LocalIndex) -> None:
    add(index, 60, 0, some_arrays(60))
    index.remove(make_keys(60)[::3])
    kept = as_lists(index)
    compact(index)
    assert as_lists(index) == kept
    for name in kept:
        assert [info.num_items for info in item_arrays.list_array_blocks(index.store, name).values()] == [10, 10, 10, 10]
    assert verify(index).problems == ()


def test_many_rows_are_added_in_several_transactions(index: LocalIndex) -> None:
    before = index.store.generation
    with patch.object(transactions, "ARRAY_BYTES_PER_TRANSACTION", 18 * 20):  # 8 + 4 + 6 bytes for an item
        add(index, 60, 0, some_arrays(60))
    assert index.store.generation == before + 3
    assert item_arrays.count_rows(index.store, "refinement") == 60


def test_backup_copies_changed_blocks_of_every_array(index: LocalIndex, tmp_path: Path) -> None:
    filled(index)
    assert backup(index, tmp_path / "b").array_blocks_copied == 14
    assert backup(index, tmp_path / "b").array_blocks_copied == 0
    add(index, 2, 100, {PRICE: np.ones((2, 1))})
    with index.store.writing():
        item_arrays.set_settings(index.store, "refinement", {"scale": 0.5})
    assert backup(index, tmp_path / "b").array_blocks_copied == 1
    with index.store.writing():
        item_arrays.delete_array(index.store, TITLE)
        item_arrays.delete_array(index.store, "refinement")
        item_arrays.append_rows(index.store, "refinement", np.arange(4, dtype=np.uint32), np.ones((4, 1), np.uint8))
    assert backup(index, tmp_path / "b").array_blocks_copied == 1
    restore(tmp_path / "b", tmp_path / "r")
    with LocalIndex.open_folder(tmp_path / "r") as restored:
        assert as_lists(restored) == as_lists(index)
        assert item_arrays.list_arrays(restored.store) == item_arrays.list_arrays(index.store)


def change(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / FILE)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE arrays SET settings = '{}' WHERE name LIKE '%title%'",
        "UPDATE arrays SET generation = generation - 1 WHERE name = 'array:price'",
        "DELETE FROM arrays WHERE name = 'refinement'",
        "UPDATE array_blocks SET data = zeroblob(length(data)) WHERE number = 4",
        "UPDATE array_blocks SET data = zeroblob(1) WHERE number = 4",
        "UPDATE array_blocks SET array = 'refinement' WHERE number = 1",
        "DELETE FROM array_blocks WHERE number = 4",
    ],
)
def test_damage_is_noticed_and_not_copied(index: LocalIndex, tmp_path: Path, statement: str) -> None:
    filled(index)
    index.close()
    change(index.folder, statement)
    with LocalIndex.open_folder(index.folder) as changed:
        problems = verify(changed).problems
        assert problems
        assert not any("\n" in problem for problem in problems)
        with pytest.raises(DamagedError):
            as_lists(changed)
        with pytest.raises(DamagedError):
            backup(changed, tmp_path / "b")


def test_rows_of_an_unknown_array_are_a_problem(index: LocalIndex) -> None:
    filled(index)
    index.close()
    columns = "num_items, min_id, max_id, width, dtype, ids_checksum, checksum, info_checksum, item_ids, data"
    change(index.folder, f"INSERT INTO array_blocks SELECT 99, {columns}, 'x', 1 FROM array_blocks WHERE number = 2")
    with LocalIndex.open_folder(index.folder) as changed:
        assert verify(changed).problems == ("There are blocks of an array that does not exist.",)


def test_salvage_saves_rows_on_intact_pages(index: LocalIndex, tmp_path: Path) -> None:
    kept = filled(index)
    settings = {name: info.settings for name, info in item_arrays.list_arrays(index.store).items()}
    index.close()
    assert salvage(index.folder, tmp_path / "whole").complete
    with LocalIndex.open_folder(tmp_path / "whole") as saved:
        assert as_lists(saved) == kept
        assert {name: info.settings for name, info in item_arrays.list_arrays(saved.store).items()} == settings
    change(index.folder, "UPDATE array_blocks SET data = zeroblob(length(data)) WHERE array = 'array:price' AND min_id = 0")
    report = salvage(index.folder, tmp_path / "part")
    assert report.notes == ("10 rows of the array 'array:price' are lost; their items are not.",)
    with LocalIndex.open_folder(tmp_path / "part") as saved:
        assert as_lists(saved) == kept | {PRICE: {item_id: row for item_id, row in kept[PRICE].items() if item_id >= 10}}


def test_salvage_does_not_mix_an_array_with_an_older_one_of_the_same_name(index: LocalIndex, tmp_path: Path) -> None:
    add(index, 30, 0, {"refinement": np.ones((30, 1), np.int8)})
    with index.store.writing():
        item_arrays.delete_array(index.store, "refinement")
        item_arrays.append_rows(index.store, "refinement", np.arange(30, dtype=np.uint32), -np.ones((30, 1), np.int8))
    index.store.run("PRAGMA wal_checkpoint(TRUNCATE)")
    index.close()
    content = bytearray((index.folder / FILE).read_bytes())
    content[:100] = bytes(100)  # without its header, SQLite reads nothing, and free pages are not known
    (index.folder / FILE).write_bytes(content)
    salvage(index.folder, tmp_path / "saved")
    with LocalIndex.open_folder(tmp_path / "saved") as saved:
        rows = array_content(saved)["refinement"]
        assert len(rows) == 30
        assert {int(row[0]) for row in rows.values()} == {-1}
