"""Searches of a local index for items that an expression keeps, and columns of its items."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.codes import clustered_codes, make_keys
from helpers.filters import TEXTS, expressions, keeps, to_text
from proxyhash import Index, InputError
from proxyhash.columns import ColumnType
from proxyhash.index.backup import backup, restore
from proxyhash.index.clusters import clustered
from proxyhash.index.local import blocks, filters, snapshots, transactions
from proxyhash.index.local.columns import COLUMN
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.item_arrays import array_settings
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.salvage import salvage
from proxyhash.index.where import evaluation
from proxyhash.utils.errors import DamagedError

QUERIES = clustered_codes(3, 8, 1234)
TYPES: Mapping[str, ColumnType] = {"number": "number", "odd `name`": "text", "day": "date"}
ROW = st.fixed_dictionaries(
    {
        "labels": st.lists(st.sampled_from(TEXTS), max_size=2).map(tuple),
        "number": st.none() | st.sampled_from([0, 1, -1, 2, 255, 256, 2**31, 2**53, 0.5, -2.5]),
        "odd `name`": st.none() | st.sampled_from(TEXTS) | st.integers(0, 300).map(str),
        "day": st.none() | st.datetimes(datetime(1960, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    }
)


@pytest.fixture
def index(tmp_path: Path) -> LocalIndex:
    """Return an index of 60 items with three columns, each of which lacks some values."""
    opened = LocalIndex.open_folder(tmp_path / "i", bits=64)
    opened.add(
        clustered_codes(60, 8, 0),
        make_keys(60),
        [("cat", "dog", "owl")[number % 3] for number in range(60)],
        columns={
            "year": [None if number % 10 == 9 else 2000 + number for number in range(60)],
            "title": [None if number % 10 == 8 else f"title {number % 4}" for number in range(60)],
            "day": [None if number % 10 == 7 else date(2024, 1, 1 + number % 28) for number in range(60)],
        },
    )
    return opened


def found_keys(index: Index, where: str) -> set[str]:
    return {match.key for match in index.search(QUERIES[:1], 10**6, where=where)[0]}


def check_filter(index: Index, expected: set[str], where: str, k: int, radius: int) -> None:
    """Compare filtered searches with searches for all items, filtered afterwards."""
    for filtered, everything in (
        (index.search(QUERIES, k, where=where), index.search(QUERIES, 10**6)),
        (index.range_search(QUERIES, radius, where=where), index.range_search(QUERIES, radius)),
    ):
        for ours, theirs in zip(filtered, everything, strict=True):
            assert list(ours) == [match for match in theirs if match.key in expected][: len(ours)]
    assert {match.key for match in index.search(QUERIES[:1], 10**6, where=where)[0]} == expected


@pytest.mark.parametrize("min_codes", [40, 10**6], ids=["clustered", "flat"])
@settings(max_examples=10)
@given(data=st.data())
def test_filter_equals_the_reference_whatever_changes(min_codes: int, data: st.DataObject) -> None:
    """Small blocks and limits, so that codes are added to segments, removed from them and read again; a reader follows."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CODES_PER_BLOCK", 16)
        patch.setattr(snapshots, "MAX_DELTA", 40)
        patch.setattr(filters, "MIN_CAPACITY", data.draw(st.sampled_from([1, 10_000])))
        patch.setattr(filters, "MIN_CODES_FOR_LATE", data.draw(st.sampled_from([1, 10_000])))
        patch.setattr(filters, "MIN_LATE_SHARE", data.draw(st.sampled_from([0.05, 0.5])))
        patch.setattr(filters, "MAX_SELECTED", data.draw(st.sampled_from([0.0, 0.1, 1.0])))
        patch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", min_codes)
        patch.setattr(clustered, "MIN_CODES_FOR_CLUSTERS", min_codes)
        rows: dict[str, dict[str, Any]] = {}
        with LocalIndex.open_folder(Path(folder), bits=64) as index, LocalIndex.open_folder(Path(folder)) as reader:
            for step in range(data.draw(st.integers(1, 5))):
                action = data.draw(st.sampled_from(["add", "remove", "compact"])) if rows else "add"
                if action == "add":
                    count, first = data.draw(st.integers(1, 60)), data.draw(st.integers(0, 80))
                    new: list[dict[str, Any]] = data.draw(st.lists(ROW, min_size=count, max_size=count))
                    columns = {name: [row[name] for row in new] for name in TYPES}
                    index.add(
                        clustered_codes(count, 8, step),
                        make_keys(count, first),
                        [row["labels"] for row in new],
                        columns=columns,
                    )
                    rows |= dict(zip(make_keys(count, first), new, strict=True))
                elif action == "compact":
                    compact(index)
                else:
                    removed = data.draw(st.lists(st.sampled_from(sorted(rows)), max_size=40, unique=True))
                    index.remove(removed)
                    rows = {key: row for key, row in rows.items() if key not in removed}
                for used in (index, reader):
                    expression = data.draw(
                        expressions({name: kind for name, kind in TYPES.items() if name in index.columns})
                    )
                    kept = {key for key, row in rows.items() if keeps(expression, row["labels"], row, TYPES)}
                    check_filter(
                        used, kept, to_text(expression), data.draw(st.integers(1, 20)), data.draw(st.integers(0, 64))
                    )
            for key, row in rows.items():
                assert dict(index.item(key).columns) == {name: row[name] for name in TYPES if row[name] is not None}
            assert verify(index).ok


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.99])
def test_filter_of_a_large_clustered_index_is_exact(tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MIN_CODES_FOR_LATE", 1)
    values = np.random.default_rng(0).random(140_000)
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(len(values), 8, 0), make_keys(len(values)), columns={"value": values})
        assert index.info().plan.endswith("clusters")
        kept = {key for key, value in zip(make_keys(len(values)), values.tolist(), strict=True) if value < share}
        check_filter(index, kept, f"value < {share}", 10, 3)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("year == 2003", {3}),
        ("year == None", {9, 19, 29, 39, 49, 59}),
        ("year != None and year < 2002", {0, 1}),
        ("not year >= 2002", {0, 1, 9, 19, 29, 39, 49, 59}),
        ("year != 2003 and year <= 2004.5", {0, 1, 2, 4}),
        ("title >= 'title 3' and label == 'cat'", {3, 15, 27, 39, 51}),
        ("title in ('title 1', 'nothing') and day < '2024-01-06'", {1, 29}),
        ("key in ('item/00003', 'item/00004', 'nowhere')", {3, 4}),
        ("label != 'cat' and label != 'dog' and year < 2006", {2, 5}),
    ],
)
def test_filters_keep_what_they_say(index: LocalIndex, where: str, expected: set[int]) -> None:
    assert found_keys(index, where) == {f"item/{number:05d}" for number in expected}


def test_labels_and_where_are_both_required(index: LocalIndex) -> None:
    found = index.search(QUERIES[:1], 100, labels=["cat", "dog"], where="year < 2005")[0]
    assert set(found.keys) == {"item/00000", "item/00001", "item/00003", "item/00004"}


def test_matches_and_items_have_their_columns(index: LocalIndex) -> None:
    (match,) = index.search(QUERIES[:1], 1, where="key == 'item/00009'")[0]
    assert match.columns == {"title": "title 1", "day": datetime(2024, 1, 10, tzinfo=UTC)}
    assert match.as_dict()["columns"] == {"title": "title 1", "day": "2024-01-10T00:00:00Z"}
    assert index.item("item/00001").columns["year"] == 2001
    assert index.list_items(limit=1)[0].columns == {
        "year": 2000,
        "title": "title 0",
        "day": datetime(2024, 1, 1, tzinfo=UTC),
    }
    assert all(item.columns for item in index.sample_items(5))
    assert index.columns == index.info().columns == {"day": "date", "title": "text", "year": "number"}


def test_column_that_appears_later_is_missing_before(index: LocalIndex) -> None:
    index.add(QUERIES[:1], ["new"], columns={"price": [1.5]})
    assert found_keys(index, "price > 1") == {"new"}
    assert len(found_keys(index, "price == None")) == 60
    assert index.item("item/00000").columns.keys() == {"year", "title", "day"}


def test_replaced_item_loses_its_old_columns(index: LocalIndex) -> None:
    index.add(QUERIES[:1], ["item/00003"], columns={"year": [1999]})
    assert found_keys(index, "year < 2000") == {"item/00003"}
    assert index.item("item/00003").columns == {"year": 1999}


def test_first_fraction_makes_a_column_one_of_fractions(index: LocalIndex) -> None:
    index.add(QUERIES[:1], ["whole"], columns={"year": [3.0]})
    assert index.item("whole").columns["year"] == 3
    assert isinstance(index.item("whole").columns["year"], int)
    index.add(QUERIES[:1], ["half"], columns={"year": [2003.5]})
    assert found_keys(index, "year >= 2003 and year < 2004") == {"item/00003", "half"}
    index.add(QUERIES[:1], ["later"], columns={"year": [2003]})
    assert found_keys(index, "year == 2003") == {"item/00003", "later"}
    with pytest.raises(InputError, match="beyond 2\\^53"):
        index.add(QUERIES[:1], ["large"], columns={"year": [2**60]})
    assert verify(index).ok


def test_columns_are_stored_in_few_bytes(index: LocalIndex) -> None:
    assert [array_settings(index.store, COLUMN + name)["dtype"] for name in ("year", "title", "day")] == ["i2", "u1", "i8"]
    index.add(QUERIES[:1], ["new"], columns={"year": [10**6]})
    assert array_settings(index.store, COLUMN + "year")["dtype"] == "i4"
    assert found_keys(index, "year > 2058") == {"new"}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"year": ["soon"]}, "year is a column of numbers; give it numbers, not texts"),
        ({"title": [3]}, "title is a column of texts"),
        ({"day": ["soon"]}, "'soon' is not an ISO date"),
        ({"label": ["cat"]}, "may not be called label"),
        ({"new": [1, 2]}, "1 items need as many values of the column new, not 2"),
    ],
)
def test_wrong_columns_are_refused_before_anything_is_written(
    index: LocalIndex, columns: dict[str, list[Any]], sentence: str
) -> None:
    before = index.generation
    with pytest.raises(InputError, match=sentence):
        index.add(QUERIES[:1], ["new"], columns=columns)
    assert index.generation == before


def test_type_that_another_process_chose_meanwhile_is_kept(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalIndex.open_folder(index.folder) as other:
        monkeypatch.setattr(LocalIndex, "columns", {})  # as it was before the other process
        with pytest.raises(InputError, match="year is a column of numbers; give it numbers, not texts"):
            other.add(QUERIES[:1], ["new"], columns={"year": ["soon"]})
    assert len(index) == 60


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("yaer > 3", "did you mean year"),
        ("year > 'a'", "year is a number"),
        ("year >", "at character 7"),
        ("", "at character 1"),
    ],
)
def test_wrong_filters_are_refused(index: LocalIndex, where: str, sentence: str) -> None:
    for search in (index.search, lambda queries, **options: index.range_search(queries, 3, **options)):
        with pytest.raises(InputError, match=sentence):
            search(QUERIES, where=where)
    with pytest.raises(InputError, match="searched exactly; leave nprobe out"):
        index.search(QUERIES, where="year > 3", nprobe=2)


def test_filter_of_an_empty_index_finds_nothing(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        assert index.search(QUERIES[:1], where="label == 'cat'")[0].keys == []
        index.add(QUERIES[:1], ["a"], columns={"title": ["x"]})
        index.remove(["a"])
        assert index.search(QUERIES[:1], where="title >= 'cat' or title == None")[0].keys == []


def test_backups_hold_columns_and_their_texts(index: LocalIndex, tmp_path: Path) -> None:
    backup(index, tmp_path / "backup")
    index.add(QUERIES[:1], ["new"], columns={"title": ["another title"]})
    index.remove(make_keys(2))
    compact(index)
    backup(index, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    for folder in ("backup", "restored"):
        with LocalIndex.open_folder(tmp_path / folder) as copy:
            assert verify(copy).ok
            assert [item.columns for item in copy.list_items()] == [item.columns for item in index.list_items()]
            assert found_keys(copy, "title >= 'a' and title < 'b'") == {"new"}
            copy.add(QUERIES[:1], ["more"], columns={"title": ["one more"]})
            assert copy.item("more").columns == {"title": "one more"}


def test_compaction_deletes_unused_texts_and_never_reuses_their_codes(index: LocalIndex) -> None:
    index.add(QUERIES[:1], ["new"], columns={"title": ["secret"]})
    index.remove(["new"])
    compact(index)
    assert index.store.rows("SELECT code FROM texts WHERE value = 'secret'") == []
    index.add(QUERIES[:1], ["new"], columns={"title": ["other"]})
    assert index.store.value("SELECT code FROM texts WHERE value = 'other'") == 5
    assert verify(index).ok


DAMAGES = {
    "UPDATE texts SET value = 'title 9' WHERE code = 1": "the text with code 1 does not match its checksum",
    "DELETE FROM texts WHERE code = 1": "1 texts of columns are missing",
    "DELETE FROM array_blocks WHERE array = 'column:year'": "blocks of the array 'column:year' are missing or out of date",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_of_columns_is_noticed(index: LocalIndex, damage: str) -> None:
    with LocalIndex.open_folder(index.folder) as other:
        other.store.run(damage)
    with pytest.raises(DamagedError, match=DAMAGES[damage]):
        index.search(QUERIES[:1], where="title > 'a' or year > 3")
    assert not verify(index).ok


def test_salvage_saves_columns_whose_texts_are_intact(index: LocalIndex, tmp_path: Path) -> None:
    with LocalIndex.open_folder(index.folder) as other:
        other.store.run("UPDATE texts SET value = 'title 9' WHERE code = 1")
        other.store.run("UPDATE items SET key = 'x' WHERE item_id = 3")
    index.close()
    report = salvage(index.folder, tmp_path / "new")
    assert (report.saved, len(report.lost)) == (59, 1)
    assert any("texts of items are lost" in note for note in report.notes)
    with LocalIndex.open_folder(tmp_path / "new") as saved:
        assert verify(saved).ok
        assert saved.item("item/00000").columns["title"] == "title 0"
        assert "title" not in saved.item("item/00001").columns
        assert saved.item("item/00001").columns["year"] == 2001
        saved.add(QUERIES[:1], ["new"], columns={"title": ["title 1"]})
        assert saved.item("new").columns == {"title": "title 1"}


def test_replaced_folder_is_filtered_by_its_own_columns(index: LocalIndex, tmp_path: Path) -> None:
    assert len(found_keys(index, "year > 2050")) == 8
    with LocalIndex.open_folder(tmp_path / "other", bits=64) as other:
        other.add(clustered_codes(60, 8, 0), make_keys(60), columns={"year": [2050] * 59 + [2051]})
    index.folder.rename(tmp_path / "old")
    (tmp_path / "other").rename(index.folder)
    assert found_keys(index, "year > 2050") == {"item/00059"}


def test_repeated_filter_is_evaluated_once_for_each_segment(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = evaluation.compile_expression

    def noting(expression: Any, columns: Mapping[str, Any]) -> Any:
        sizes.append(len(columns["year"].values))
        return real(expression, columns)

    monkeypatch.setattr(filters, "compile_expression", noting)
    monkeypatch.setattr(blocks, "CODES_PER_BLOCK", 60)
    index.search(QUERIES, where="year > 2030")
    index.search(QUERIES, where="year > 2030", k=3)
    index.add(QUERIES[:1], ["new"], columns={"year": [2100]})
    assert "new" in found_keys(index, "year > 2030")
    assert sorted(size for size in sizes if size) == [1, 60]


def test_unusual_texts_survive(tmp_path: Path) -> None:
    values = ["", "a\0b", "'; DROP TABLE texts; --", "🐈", "x" * 60_000, "\u2028"]
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(len(values), 8, 0), make_keys(len(values)), columns={"t": values})
        assert [item.columns["t"] for item in index.list_items()] == values
        assert found_keys(index, 't == "\'; DROP TABLE texts; --"') == {"item/00002"}


def test_filter_after_the_search_is_exact_though_the_nearest_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the nearest items are left out, so that more of them must be found than the share suggests."""
    monkeypatch.setattr(filters, "MIN_CODES_FOR_LATE", 1)
    codes = np.repeat(QUERIES[:1], 1000, axis=0)
    codes[100:] ^= 255
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(codes, make_keys(1000), columns={"number": range(1000)})
        for _ in range(3):  # the second time with a mask
            assert index.search(QUERIES[:1], 5, where="number >= 100")[0].keys == make_keys(5, 100)
        assert index.search(QUERIES[:1], 950, where="number >= 101")[0].keys == make_keys(899, 101)
        assert [match.key for match in index.range_search(QUERIES[:1], 63, where="number != 3")[0]] == [
            key for key in make_keys(100) if key != "item/00003"
        ]


@pytest.mark.parametrize("plan", ["scan", "mih"])
def test_filters_and_plans_combine(index: LocalIndex, plan: Any) -> None:
    expected = {f"item/{number:05d}" for number in range(3)}
    assert set(index.search(QUERIES[:1], 100, where="year < 2003", plan=plan)[0].keys) == expected
