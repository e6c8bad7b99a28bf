"""Near duplicates of an index: groups, refinements, two indexes, state files."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from helpers.codes import clustered_codes, make_keys
from proxyhash import InputError, codes
from proxyhash.codes.bits import Packed
from proxyhash.index.calibration import Calibration
from proxyhash.index.duplicates import DuplicatesReport, find_duplicates, radius_of_precision
from proxyhash.index.duplicates.compared import DEFAULT_BITS, DEFAULT_STEPS
from proxyhash.index.local import transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.item_arrays import append_rows, set_settings
from proxyhash.index.refinement.storage import rows_name

Keys = set[frozenset[str]]


def components(near: NDArray[np.bool_], keys: list[str]) -> Keys:
    """Return the connected components of at least two keys, by scipy."""
    _, label = connected_components(csr_array(near), directed=False)
    groups: dict[int, set[str]] = {}
    for key, number in zip(keys, label.tolist(), strict=True):
        groups.setdefault(number, set()).add(key)
    return {frozenset(group) for group in groups.values() if len(group) > 1}


def found_keys(report: DuplicatesReport) -> Keys:
    return {frozenset(item.key for item in group.items) for group in report}


def refine_index(index: LocalIndex, rows: NDArray[np.generic], first: int = 0) -> None:
    """Store a refinement of the items from an id on."""
    with index.store.writing():
        item_ids = np.arange(first, first + len(rows), dtype=np.uint32)
        version = index.store.active_version
        set_settings(index.store, f"refiner:{version}", {"kind": "int8" if rows.dtype == np.int8 else "code"})
        append_rows(index.store, rows_name(version), item_ids, rows)


@pytest.mark.parametrize("radius", [0, 1, 2, 6])
@pytest.mark.parametrize(("width", "in_clusters"), [(2, False), (2, True), (12, False), (12, True)])
def test_groups_are_connected_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, radius: int, width: int, in_clusters: bool
) -> None:
    monkeypatch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 100 if in_clusters else 10**9)
    monkeypatch.setattr("proxyhash.index.clusters.centroids.MAX_SCAN_FRACTION", 1.0)
    stored = clustered_codes(250, width, 3, centroids=30, flips=0.03)
    with LocalIndex.open_folder(tmp_path / "i", bits=8 * width) as index:
        index.add(stored[:200], make_keys(200))
        index.snapshots.latest()
        index.add(stored[200:], make_keys(50, 200))
        assert index.info().plan.endswith("clusters") == in_clusters
        found = find_duplicates(index, radius)
    assert found_keys(found) == components(codes.hamming_distances(stored, stored) <= radius, make_keys(250))
    assert [group.size for group in found] == sorted((group.size for group in found), reverse=True)
    assert repr(found[0]).startswith(f"DuplicateGroup({found[0].size} like 'item/")
    assert (found.num_items, found.num_new, found.num_left_out) == (250, 250, 0)


def test_distances_are_to_the_item_to_keep(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=8) as index:
        index.add(np.array([[7], [0], [1], [3]], np.uint8), ["a/d", "a/a", "b/b", "a/c"])
        first, best = (find_duplicates(index, 1, keep_best=keep)[0] for keep in (None, "name=b/*"))
    assert [(item.key, item.distance, item.is_kept) for item in first.items] == [
        ("a/d", 0, True), ("a/c", 1, False), ("b/b", 2, False), ("a/a", 3, False),
    ]  # fmt: skip
    assert [(item.key, item.distance, item.is_kept) for item in best.items][:2] == [("b/b", 0, True), ("a/a", 1, False)]


def test_empty_index_has_no_duplicates(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        assert len(find_duplicates(index, 3)) == 0
        assert len(find_duplicates(index, 3, since=tmp_path / "s.json")) == 0
        assert len(find_duplicates(index, 3, since=tmp_path / "s.json")) == 0
        with pytest.raises(InputError, match="radius must be at least 0"):
            find_duplicates(index, -1)


def test_large_groups_are_capped_and_not_listed(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=8) as index:
        index.add(np.array([[0]] * 5 + [[255]] * 2, np.uint8), make_keys(7))
        found = find_duplicates(index, max_group=3)
    assert [(group.size, len(group.items), group.is_capped) for group in found] == [(5, 3, True), (2, 2, False)]
    assert [item.key for item in found.others()] == ["item/00006"]
    assert found.num_duplicates == 7


@pytest.mark.parametrize("kind", ["code", "int8"])
def test_refinements_must_be_near_too(tmp_path: Path, kind: str) -> None:
    stored = clustered_codes(120, 8, 1, centroids=3, flips=0.02)
    random = np.random.default_rng(2)
    if kind == "code":
        rows: NDArray[np.generic] = clustered_codes(110, 16, 4, centroids=30, flips=0.008)
        fine = codes.hamming_distances(rows, rows) <= DEFAULT_BITS[128]
    else:
        middle = random.integers(-100, 100, (30, 64))
        rows = (middle[random.integers(0, 30, 110)] + random.integers(-5, 6, (110, 64))).astype(np.int8)
        fine = np.square(rows[:, None].astype(int) - rows.astype(int)).sum(2) <= DEFAULT_STEPS**2
    near = (codes.hamming_distances(stored, stored) <= 5)[:110, :110]
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(stored, make_keys(120))
        with pytest.raises(InputError, match="There is no refinement"):
            find_duplicates(index, 5, refine=True)
        refine_index(index, rows)
        found, without = find_duplicates(index, 5), find_duplicates(index, 5, refine=False)
        wide = find_duplicates(index, 5, refine_radius=10_000)
    assert found_keys(found) == components(near & fine, make_keys(110)) != found_keys(without)
    assert found_keys(wide) == components(near, make_keys(110))
    assert (found.num_items, found.num_left_out, without.num_left_out) == (110, 10, 0)
    assert found.unit == ("bits" if kind == "code" else "steps")
    assert found[0].items[0].refinement == 0 < max(item.refinement or 0 for group in found for item in group.items)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), radius=st.integers(0, 12))
def test_groups_of_two_indexes_are_connected_by_pairs_between_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, radius: int
) -> None:
    folder = tmp_path_factory.mktemp("two")
    stored = clustered_codes(90, 8, seed, centroids=20, flips=0.05)
    one, two = make_keys(50), [f"other/{number}" for number in range(40)]
    with LocalIndex.open_folder(folder / "a", bits=64) as a, LocalIndex.open_folder(folder / "b", bits=64) as b:
        a.add(stored[:50], one)
        b.add(stored[50:], two)
        found = find_duplicates(a, radius, against=b)
    is_other = np.arange(90) >= 50
    near = (codes.hamming_distances(stored, stored) <= radius) & (is_other[:, None] != is_other)
    assert found_keys(found) == components(near, one + two)
    assert all(item.is_other == item.key.startswith("other/") for group in found for item in group.items)
    assert all(group.items[0].is_other for group in found)  # those of the other index are kept
    assert {item.key for item in found.others()} == {item.key for group in found for item in group.items} - set(two)


def test_refinements_of_two_indexes_are_compared_if_they_have_one_refiner(tmp_path: Path) -> None:
    rows = np.zeros((2, 16), np.uint8)
    rows[1] = 255
    with LocalIndex.open_folder(tmp_path / "a", bits=8) as a, LocalIndex.open_folder(tmp_path / "b", bits=8) as b:
        for index in (a, b):
            index.add(np.zeros((2, 1), np.uint8), ["x", "y"])
        refine_index(a, rows)
        assert [group.size for group in find_duplicates(a, against=b)] == [4]
        with pytest.raises(InputError, match="There is no refinement"):
            find_duplicates(a, against=b, refine=True)
        refine_index(b, rows)
        assert [group.size for group in find_duplicates(a, against=b)] == [2, 2]
        with pytest.raises(InputError, match="A state file is of one index"):
            find_duplicates(a, against=b, since=tmp_path / "s.json")
        c = LocalIndex.open_folder(tmp_path / "c", bits=16)
        with c, pytest.raises(InputError, match="different models"):
            find_duplicates(a, against=c)


change = st.tuples(st.sampled_from(["add", "remove", "replace"]), st.integers(1, 12), st.integers(0, 10**6))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(change, min_size=1, max_size=5), radius=st.integers(0, 12), refined=st.booleans())
def test_search_since_a_state_gives_the_result_of_a_full_search(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], radius: int, refined: bool
) -> None:
    folder = tmp_path_factory.mktemp("since")

    def new_codes(count: int, seed: int) -> Packed:
        return clustered_codes(count, 8, seed, centroids=6, flips=0.06)

    def add(count: int, seed: int, keys: list[str]) -> None:
        first = index.store.meta().next_id
        index.add(new_codes(count, seed), keys)
        if refined:
            refine_index(index, clustered_codes(count, 16, seed + 1, centroids=4, flips=0.02), first)

    with LocalIndex.open_folder(folder / "i", bits=64) as index:
        keys = make_keys(60)
        add(60, 7, keys)
        find_duplicates(index, radius, since=folder / "s.json")
        for name, count, seed in steps:
            some = [keys[number] for number in np.random.default_rng(seed).permutation(len(keys))[:count]]
            if name == "add":
                added = make_keys(count, 1000 + len(keys) + seed)
                keys = sorted({*keys, *added})
                add(count, seed, added)
            elif name == "replace":
                add(len(some), seed, some)
            elif len(some) < len(keys):
                keys = sorted({*keys} - {*some})
                index.remove(some)
            full, since = find_duplicates(index, radius), find_duplicates(index, radius, since=folder / "s.json")
            assert since.groups == full.groups
            assert since.num_new <= full.num_new == len(keys)


def test_only_items_added_since_are_compared(tmp_path: Path) -> None:
    state = tmp_path / "s.json"
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(500, 8, 1), make_keys(500))
        assert find_duplicates(index, 2, since=state).num_new == 500
        assert find_duplicates(index, 2, since=state).num_new == 0
        index.add(clustered_codes(5, 8, 2), make_keys(5, 500))
        assert find_duplicates(index, 2, since=state).num_new == 5
        assert find_duplicates(index, 3, since=state).num_new == 505  # another radius
        other = LocalIndex.open_folder(tmp_path / "other", bits=64)
        with other, pytest.raises(InputError, match="is of another index"):
            find_duplicates(other, 3, since=state)


def test_state_file_that_is_something_else_is_not_overwritten(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(50, 8, 1), make_keys(50))
        path = tmp_path / "s.json"
        find_duplicates(index, 2, since=path)
        content = json.loads(path.read_text())
        for text in ("{}", "[1]", "no JSON", json.dumps({**content, "groups": [[1, 2], [2, 3]]})):
            path.write_text(text)
            with pytest.raises(InputError):
                find_duplicates(index, 2, since=path)
            assert path.read_text() == text


def test_radius_comes_from_the_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=3) as index:
        with pytest.raises(InputError, match="was not calibrated"):
            radius_of_precision(index, 0.9)
        found = Calibration(np.array([0.97, 0.96, 0.8, 0.1]), np.ones(4, np.int64))
        monkeypatch.setattr(LocalIndex, "calibration", found)
        assert [radius_of_precision(index, precision) for precision in (0.95, 0.8, 0.05)] == [1, 2, 3]
        with pytest.raises(InputError, match=r"Even equal codes have an expected precision of 0\.970"):
            radius_of_precision(index, 0.99)
        with pytest.raises(InputError, match="precision must be above 0"):
            radius_of_precision(index, 0.0)
