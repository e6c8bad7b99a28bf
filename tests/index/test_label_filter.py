"""Searches for items with one of some labels."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.codes import clustered_codes, make_keys
from proxyhash import Index, InputError
from proxyhash.cli.app import main
from proxyhash.index.clusters import clustered
from proxyhash.index.local import blocks, filters, items, label_table, snapshots, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.maintenance import compact
from proxyhash.index.results import Matches
from proxyhash.utils.errors import DamagedError

QUERIES = clustered_codes(3, 8, 1234)
LABELS = st.lists(st.sampled_from(["cat", "dog", 'a "cat', ", ", "é%_\\", ""]), max_size=3)


@pytest.fixture
def index(tmp_path: Path) -> LocalIndex:
    """Return an index of 60 items, a third of each label."""
    opened = LocalIndex.open_folder(tmp_path / "i", bits=64)
    opened.add(clustered_codes(60, 8, 0), make_keys(60), [("cat", "dog", "owl")[number % 3] for number in range(60)])
    return opened


def filtered(found: Sequence[Matches], labels: Sequence[str], k: int) -> list[list[tuple[str, int]]]:
    """Return the first k keys and distances with one of the labels, from a search for all items."""
    kept = [[match for match in matches if set(labels) & set(match.labels)][:k] for matches in found]
    return [[(match.key, match.distance) for match in matches] for matches in kept]


def pairs(found: Sequence[Matches]) -> list[list[tuple[str, int]]]:
    return [[(match.key, match.distance) for match in matches] for matches in found]


def check_filter(index: Index, labels: Sequence[str], k: int, radius: int) -> None:
    """Compare filtered searches with searches for all items, filtered afterwards."""
    assert pairs(index.search(QUERIES, k, labels=labels)) == filtered(index.search(QUERIES, 10**6), labels, k)
    everything = index.range_search(QUERIES, radius)
    assert pairs(index.range_search(QUERIES, radius, labels=labels)) == filtered(everything, labels, 10**6)


@pytest.mark.parametrize("min_codes", [40, 10**6], ids=["clustered", "flat"])
@settings(max_examples=12)
@given(data=st.data())
def test_filter_equals_a_search_for_all_items_filtered_afterwards(min_codes: int, data: st.DataObject) -> None:
    """Small blocks and limits, so that codes are added to segments, removed from them and read again; a reader follows."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CODES_PER_BLOCK", 16)
        patch.setattr(snapshots, "MAX_DELTA", 40)
        patch.setattr(filters, "MIN_CAPACITY", data.draw(st.sampled_from([1, 10_000])))
        patch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", min_codes)
        patch.setattr(clustered, "MIN_CODES_FOR_CLUSTERS", min_codes)
        present: set[str] = set()
        with LocalIndex.open_folder(Path(folder), bits=64) as index, LocalIndex.open_folder(Path(folder)) as reader:
            for step in range(data.draw(st.integers(1, 6))):
                if data.draw(st.booleans()) or not present:
                    count, first = data.draw(st.integers(1, 90)), data.draw(st.integers(0, 100))
                    labels = data.draw(st.lists(LABELS, min_size=count, max_size=count))
                    index.add(clustered_codes(count, 8, step), make_keys(count, first), labels)
                    present |= set(make_keys(count, first))
                elif data.draw(st.booleans()):
                    compact(index)
                else:
                    removed = data.draw(st.lists(st.sampled_from(sorted(present)), max_size=60, unique=True))
                    index.remove(removed)
                    present -= set(removed)
                for used in (index, reader):
                    wanted = data.draw(LABELS.filter(bool))
                    check_filter(used, wanted, data.draw(st.integers(1, 20)), data.draw(st.integers(0, 64)))


@pytest.mark.parametrize("label", ["half", "few", "none"])
def test_filter_of_a_large_clustered_index_is_exact(tmp_path: Path, label: str) -> None:
    labels = [["half"] * (number % 2) + ["few"] * (number % 500 == 7) for number in range(140_000)]
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(len(labels), 8, 0), make_keys(len(labels)), labels)
        assert index.info().plan.endswith("clusters")
        check_filter(index, [label], 10, 3)


def test_far_items_are_found(index: LocalIndex) -> None:
    index.add(~QUERIES[:1], ["far"], ["rare"])
    found = index.search(QUERIES[:1], 10, labels="rare")[0]
    assert (found.keys, found[0].distance, found.exact) == (["far"], 64, True)
    assert index.search(QUERIES[:1], 10, labels="rare", radius=63)[0].keys == []


def test_ties_go_to_the_item_that_was_added_first(index: LocalIndex) -> None:
    index.add(np.repeat(QUERIES[:1], 5, axis=0), ["e", "d", "c", "b", "a"], ["x", "y", "x", "y", "x"])
    index.add(QUERIES[:1], ["e"], ["x"])
    assert index.search(QUERIES[:1], 2, labels=["x"])[0].keys == ["c", "a"]
    assert index.search(QUERIES[:1], 4, labels=["x", "y"])[0].keys == ["d", "c", "b", "a"]


def test_filtered_items_are_reranked_and_have_codes(index: LocalIndex) -> None:
    embeddings = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    everything = index.search(embeddings, 60, rerank=60, with_codes=True)
    found = index.search(embeddings, 5, rerank=60, with_codes=True, labels="owl")
    for ours, all_items in zip(found, everything, strict=True):
        assert list(ours) == [match for match in all_items if "owl" in match.labels][:5]


def test_unknown_label_finds_nothing(index: LocalIndex) -> None:
    assert [len(matches) for matches in index.search(QUERIES, labels=["cats"])] == [0, 0, 0]
    assert [len(matches) for matches in index.range_search(QUERIES, 64, labels=["ca", 'cat"', '"cat"'])] == [0, 0, 0]
    with LocalIndex.open_folder(index.folder.with_name("empty"), bits=64) as empty:
        assert empty.search(QUERIES[:1], labels="cat")[0].keys == []


def test_many_labels_are_searched_at_once(index: LocalIndex) -> None:
    check_filter(index, [*map(str, range(2000)), "cat", "owl"], 30, 20)


@pytest.mark.parametrize(
    ("labels", "nprobe", "sentence"),
    [
        ([], None, "needs at least one label"),
        ([1], None, "must be texts"),
        (["cat"], 3, "searched exactly; leave nprobe out"),
    ],
)
def test_invalid_filters_are_refused(index: LocalIndex, labels: list[str], nprobe: int | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        index.search(QUERIES, labels=labels, nprobe=nprobe)


def test_labels_are_read_once_for_each_item(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = items.check_rows_from

    def noting(store: object, first_id: int) -> object:
        read.append(first_id)
        return real(store, first_id)  # type: ignore[arg-type]

    monkeypatch.setattr(label_table, "check_rows_from", noting)
    index.search(QUERIES, labels="cat")
    index.search(QUERIES, labels=["cat"])
    index.add(QUERIES[:1], ["new"], ["cat"])
    index.remove(make_keys(2))
    assert "new" in index.search(QUERIES, labels="cat")[0].keys
    index.search(QUERIES, labels=["dog", "cat"])
    index.search(QUERIES, labels=["cat", "dog"])
    assert read == [0, 60]


def test_cached_filters_take_fewer_bytes_than_the_codes(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MIN_CAPACITY", 1)
    for labels in (["cat"], ["dog"], ["owl"], ["cat", "dog"], ["cat", "dog", "owl"], ["cat"]):
        check_filter(index, labels, 5, 10)
        assert index.filters.nbytes <= 12 * len(index)


def test_change_during_a_filtered_search_is_not_half_seen(index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the comparison of codes and the lookup of items, another process gives all cats new codes and keys."""
    with LocalIndex.open_folder(index.folder) as writer:
        turns = iter("abcdefg")

        def then_replace(search: Callable[..., object]) -> Callable[..., object]:
            def run(*arguments: object, **named: object) -> object:
                hits = search(*arguments, **named)
                turn = next(turns)
                writer.remove([item.key for item in all_cats(writer)])
                writer.add(clustered_codes(20, 8, ord(turn)), [f"{turn}{number}" for number in range(20)], ["cat"] * 20)
                return hits

            return run

        def all_cats(used: LocalIndex) -> list[items.Item]:
            return [item for item in used.list_items(limit=1000) if "cat" in item.labels]

        monkeypatch.setattr(snapshots.Snapshot, "nearest", then_replace(snapshots.Snapshot.nearest))
        keys = index.search(QUERIES[:1], 100, labels="cat")[0].keys
        assert len(keys) == 20
        assert len({key[0] for key in keys}) == 1


def test_replaced_folder_is_filtered_by_its_own_labels(index: LocalIndex, tmp_path: Path) -> None:
    assert len(index.search(QUERIES[:1], 100, labels="cat")[0]) == 20
    with LocalIndex.open_folder(tmp_path / "other", bits=64) as other:
        other.add(clustered_codes(60, 8, 0), make_keys(60), ["dog"] * 59 + ["cat"])
    index.folder.rename(tmp_path / "old")
    (tmp_path / "other").rename(index.folder)
    assert index.search(QUERIES[:1], 100, labels="cat")[0].keys == ["item/00059"]


def test_changed_label_is_noticed_though_it_does_not_match(index: LocalIndex) -> None:
    with LocalIndex.open_folder(index.folder) as other:
        other.store.run("UPDATE items SET labels = '[\"cow\"]' WHERE item_id = 3")
    with pytest.raises(DamagedError, match="item 3 does not match its checksum"):
        index.search(QUERIES, labels="cat")


def test_missing_item_is_noticed_though_it_is_not_near(index: LocalIndex) -> None:
    with LocalIndex.open_folder(index.folder) as other:
        other.store.run("DELETE FROM items WHERE item_id = 3")
    with pytest.raises(DamagedError, match="it has 59 items, but 60 codes"):
        index.search(QUERIES, 1, labels="cat")


def test_key_with_a_null_character_is_not_damage(index: LocalIndex) -> None:
    index.add(QUERIES[:1], ["a\0b"], ["nul"])
    assert index.search(QUERIES[:1], labels="nul")[0].keys == ["a\0b"]


def test_command_line_searches_by_label(index: LocalIndex, capsys: pytest.CaptureFixture[str]) -> None:
    main(["search", str(index.folder), "--key", "item/00000", "--label", "dog", "--label", "owl", "-k", "100", "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert [match["labels"] for match in found["matches"]].count(["dog"]) == 20
    assert len(found["matches"]) == 40
    main(["search", str(index.folder), "--key", "item/00000", "--label", "cow"])
    assert "Nothing was found." in capsys.readouterr().out
