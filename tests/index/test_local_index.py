import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxyhash
from helpers.codes import clustered_codes, make_keys
from proxyhash import Index, InputError, codes
from proxyhash.codes.bits import Packed
from proxyhash.index.calibration import Calibration
from proxyhash.index.local import blocks, snapshots, transactions
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import Item
from proxyhash.index.maintenance import verify
from proxyhash.index.model_store import model_dir
from proxyhash.index.results import AddResult, IndexInfo, Match, Matches
from proxyhash.utils import available_memory
from proxyhash.utils.errors import KeyNotFoundError


def local_index(path: Path, bits: int = 64) -> LocalIndex:
    index = Index.open(path, bits=bits)
    assert isinstance(index, LocalIndex)
    return index


def check_against(index: LocalIndex, expected: dict[str, bytes], order: list[str], queries: Packed) -> None:
    """Compare an index with a full scan of what should be in it, in the order of adding."""
    assert len(index) == len(expected)
    database = np.array([list(expected[key]) for key in order], np.uint8)
    near = codes.top_k(queries, database, 7)
    for row, matches in enumerate(index.search(queries, 7)):
        assert matches.keys == [order[number] for number in near.indices[row]]
        assert [match.distance for match in matches] == near.distances[row].tolist()
    within = codes.range_search(queries, database, 5)
    for row, matches in enumerate(index.range_search(queries, 5)):
        assert matches.keys == [order[number] for number in within[row][1]]


def test_index_is_a_public_name() -> None:
    assert proxyhash.Index is Index
    with pytest.raises(AttributeError, match="no attribute 'Indx'"):
        proxyhash.Indx  # noqa: B018


def test_codes_are_searched_without_torch(tmp_path: Path) -> None:
    script = f"""
        import sys, numpy, proxyhash
        with proxyhash.Index.open({str(tmp_path / "i")!r}, bits=64) as index:
            index.add(numpy.zeros((2, 8), numpy.uint8), ["a", "b"])
            print(index.search(numpy.zeros((1, 8), numpy.uint8))[0].keys, "torch" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "['a', 'b'] False\n"


@pytest.mark.parametrize("bits", [5, 16, 64, 100, 256])
def test_added_items_are_found_after_reopening(tmp_path: Path, bits: int) -> None:
    stored = codes.pack(np.random.default_rng(0).random((300, bits)) < 0.5)
    with local_index(tmp_path / "i", bits) as index:
        assert repr(index.add(stored, make_keys(300), [f"class {n % 3}" for n in range(300)])) == "AddResult(300)"
    with local_index(tmp_path / "i") if bits == 64 else Index.open(tmp_path / "i") as index:
        assert (len(index), index.bits) == (300, bits)
        first = index.search(stored[:2], 3)[1][0]
        assert first == Match("item/00001", 0, 1, ("class 1",))
        assert repr(first) == "Match('item/00001', 0 bits)"
        near = codes.top_k(stored[:40], stored, 9)
        found = index.search(stored[:40], 9)
        assert [matches.keys for matches in found] == [[make_keys(300)[p] for p in row] for row in near.indices]


@settings(max_examples=10)
@given(data=st.data())
def test_any_sequence_of_changes_equals_a_dictionary(data: st.DataObject) -> None:
    """Small blocks and small limits, so that every way of keeping memory in step is taken; a second reader follows."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CODES_PER_BLOCK", 16)
        patch.setattr(snapshots, "MAX_DELTA", 40)
        patch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 100)
        patch.setattr(transactions, "CODES_PER_TRANSACTION", 24)
        expected: dict[str, bytes] = {}
        queries = clustered_codes(3, 8, 1234)
        with local_index(Path(folder) / "i") as index, local_index(Path(folder) / "i") as reader:
            for step in range(data.draw(st.integers(1, 7))):
                if data.draw(st.booleans()) or not expected:
                    count, first = data.draw(st.integers(1, 70)), data.draw(st.integers(0, 150))
                    fresh = clustered_codes(count, 8, step)
                    keys = make_keys(count, first)
                    replaced = index.add(fresh, keys).replaced
                    assert replaced == sum(key in expected for key in keys)
                    for key, code in zip(keys, fresh, strict=True):
                        expected.pop(key, None)
                        expected[key] = code.tobytes()
                else:
                    deleted = data.draw(st.lists(st.sampled_from(sorted(expected)), max_size=40, unique=True))
                    assert index.remove(deleted) == len(deleted)
                    for key in deleted:
                        del expected[key]
                if expected:
                    check_against(index, expected, list(expected), queries)
                    check_against(reader, expected, list(expected), queries)
            assert verify(index).problems == ()


def test_large_index_is_clustered_and_equals_a_scan(tmp_path: Path) -> None:
    stored, queries = clustered_codes(70_000, 8, 0), clustered_codes(50, 8, 1)
    with local_index(tmp_path / "i") as index:
        index.add(stored, make_keys(len(stored)))
        assert index.info().plan.endswith("clusters")
        near, found = codes.top_k(queries, stored, 10), index.search(queries, 10)
        assert [[match.item_id for match in matches] for matches in found] == near.indices.tolist()
        assert [[match.distance for match in matches] for matches in found] == near.distances.tolist()
        _, compared = index.snapshots.latest().nearest(queries.view(np.uint64), 10)
        assert compared < 0.2 * len(queries) * len(stored)


def test_uniform_codes_are_scanned(tmp_path: Path) -> None:
    stored = np.random.default_rng(0).integers(0, 256, (70_000, 8), dtype=np.uint8)
    with local_index(tmp_path / "i") as index:
        index.add(stored, make_keys(len(stored)))
        assert index.info().plan == "scan"


@pytest.mark.parametrize(
    ("k", "sentence"), [(0, "k must be at least 1, not 0"), (-1, "not -1"), (2.5, "must be a whole number"), (True, "whole")]
)
def test_invalid_k_is_refused(tmp_path: Path, k: int, sentence: str) -> None:
    with local_index(tmp_path / "i") as index, pytest.raises(InputError, match=sentence):
        index.search(clustered_codes(1, 8, 0), k)


def test_k_above_the_size_returns_all_items(tmp_path: Path) -> None:
    with local_index(tmp_path / "i") as index:
        index.add(clustered_codes(30, 8, 0), make_keys(30))
        assert sorted(index.search(clustered_codes(1, 8, 1), 10**9)[0].keys) == make_keys(30)
        assert len(index.range_search(clustered_codes(1, 8, 1), 10**9)[0]) == 30


def test_empty_index_finds_nothing(tmp_path: Path) -> None:
    with local_index(tmp_path / "i") as index:
        assert [list(m) for m in index.search(clustered_codes(2, 8, 0), 3)] == [[], []]
        assert len(index.range_search(clustered_codes(1, 8, 0), 64)[0]) == 0
        assert repr(index.search(clustered_codes(1, 8, 0))[0]) == "Matches(0 for 'query 0')"
        assert verify(index).ok


def test_invalid_items_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    with local_index(tmp_path / "i") as index:
        index.add(clustered_codes(5, 8, 0), make_keys(5))
        for arguments, sentence in [
            ((clustered_codes(2, 4, 0), make_keys(2)), "Codes of 4 bytes do not fit an index of 64 bits"),
            ((clustered_codes(2, 8, 0),), "Codes need keys"),
            ((clustered_codes(2, 8, 0), ["a"]), "2 codes need as many keys, not 1"),
            ((clustered_codes(2, 8, 0), ["a", "a"]), "a occurs twice"),
            ((clustered_codes(2, 8, 0), ["a", ""]), "may not be empty"),
            ((clustered_codes(2, 8, 0), ["a", "b"], ["x"]), "as many labels"),
            ((clustered_codes(2, 8, 0).astype(np.int64), ["a", "b"]), "must be packed"),
            ((np.zeros((2, 32)), ["a", "b"]), "Embeddings of 32 bits cannot be compared with an index of 64 bits"),
            ((["a.jpg"],), "has no model, so search it with codes"),
        ]:
            with pytest.raises(InputError, match=sentence):
                index.add(*arguments)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="no item nope and 1 more; nothing was removed"):
            index.remove(["item/00001", "nope", "nope2"])
        assert len(index) == 5
    with pytest.raises(InputError, match="is an index of 64 bits, not 32"):
        Index.open(tmp_path / "i", bits=32)
    with pytest.raises(InputError, match="beyond the 5"):
        Index.open(tmp_path / "five", bits=5).add(np.array([[255]], np.uint8), ["a"])


def test_results_have_readable_representations() -> None:
    match = Match("a", 3, 0, ("cat",), 0.731)
    assert repr(match) == "Match('a', 3 bits, 73 % same label)"
    matches = Matches("q", (match,), matched=False, exact=False)
    assert repr(matches) == "Matches(1 for 'q', first Match('a', 3 bits, 73 % same label), approximate, no match)"
    assert matches.as_dict()["matches"] == [
        {"key": "a", "distance": 3, "item_id": 0, "labels": ("cat",), "expected_precision": 0.731}
    ]
    assert (matches[0], matches[:1], list(matches)) == (match, (match,), [match])
    assert repr(AddResult(5, 2, unreadable=1)) == "AddResult(5, 2 replaced, 1 unreadable)"
    assert repr(IndexInfo("here", 1000, 64, None, "scan", False, (), 5)) == "IndexInfo(here: 1,000 items of 64 bits, scan)"


def test_code_of_an_item_is_returned(tmp_path: Path) -> None:
    stored = clustered_codes(40, 8, 0)
    with local_index(tmp_path / "i") as index:
        index.add(stored, make_keys(40))
        np.testing.assert_array_equal(index.code("item/00017"), stored[17:18])
        with pytest.raises(InputError, match="has no item nope"):
            index.code("nope")


def test_items_at_and_beyond_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = clustered_codes(1, 8, 0)
    with local_index(tmp_path / "i") as index:
        index.add(code, ["é" * 32_767 + "a"], [("x" * 999_996,)])
        assert len(index.search(code, 1)[0][0].key.encode()) == 65_535
        with pytest.raises(InputError, match="A key has at most 65,535 bytes"):
            index.add(code, ["é" * 32_768])
        with pytest.raises(InputError, match="labels of an item have at most 1,000,000 bytes"):
            index.add(code, ["a"], [("x" * 999_997,)])
        monkeypatch.setattr(transactions, "MAX_ITEM_ID", 3)
        index.add(code, ["b"])
        with pytest.raises(InputError, match="An index holds at most 3 items, counting those that were replaced or removed"):
            index.add(clustered_codes(2, 8, 0), ["c", "d"])
        assert (len(index), verify(index).problems) == (2, ())
    widest = codes.pack(np.ones((1, 4096), bool))
    with local_index(tmp_path / "widest", 4096) as index:
        index.add(widest, ["a"])
        assert index.search(widest, 1)[0][0].distance == 0


def test_items_are_listed_in_the_order_of_keys(tmp_path: Path) -> None:
    keys = [*make_keys(30), "a/\0", "a", "z/ü", "z/u", "z/%"]
    with local_index(tmp_path / "i") as index:
        assert index.list_items() == []
        index.add(clustered_codes(len(keys), 8, 0), keys[::-1], [("x", "y")] * len(keys))
        found: list[Item] = []
        while page := index.list_items(found[-1].key if found else None, 4):
            found += page
        assert [item.key for item in found] == sorted(keys)
        assert {item.labels for item in found} == {("x", "y")}
        assert [item.key for item in index.list_items("item/00028x")] == ["item/00029", "z/%", "z/u", "z/ü"]
        with pytest.raises(InputError, match="limit must be at least 1"):
            index.list_items(limit=0)


def test_samples_are_uniform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "CODES_PER_BLOCK", 8)
    with local_index(tmp_path / "i") as index:
        assert index.sample_items(3) == []
        index.add(clustered_codes(40, 8, 0), make_keys(40))
        index.remove([key for number, key in enumerate(make_keys(40)) if number % 4])
        counts = Counter(item.key for _ in range(300) for item in index.sample_items(5))
        assert sorted(counts) == make_keys(40)[::4]
        assert 100 < min(counts.values()) <= max(counts.values()) < 200  # 150 are expected
        assert sorted(item.key for item in index.sample_items(99)) == make_keys(40)[::4]


def test_unknown_key_is_an_error_of_its_own(tmp_path: Path) -> None:
    with local_index(tmp_path / "i") as index:
        index.add(clustered_codes(5, 8, 0), make_keys(5))
        for ask in (index.item, index.code, index.remove):
            with pytest.raises(KeyNotFoundError, match="The index has no item nope"):
                ask("nope")


def test_generation_changes_with_the_index(tmp_path: Path, model: Path) -> None:
    with local_index(tmp_path / "i") as index, local_index(tmp_path / "i") as reader:
        seen = {reader.generation}
        index.add(clustered_codes(5, 8, 0), make_keys(5))
        seen.add(reader.generation)
        index.remove(make_keys(1))
        seen.add(reader.generation)
        assert reader.generation == reader.generation
        assert len(seen) == 3
    with Index.open(tmp_path / "m", model=model) as index:
        before = index.generation
        assert index.model is not None
        Calibration(np.linspace(1, 0, index.bits + 1), np.arange(index.bits + 1)).save(
            model_dir(tmp_path / "m", index.model)
        )
        assert index.generation != before


def test_index_larger_than_memory_is_refused_with_the_numbers(tmp_path: Path) -> None:
    zeros = np.zeros((50_000, 128), np.uint8)
    with LocalIndex.open_folder(tmp_path / "i", bits=1024) as index:
        index.add(zeros, [str(number) for number in range(len(zeros))])
        sentence = r"50,000 codes of .* need 6\.6 MB of memory, and 5\.0 MB are available; .* Milvus\.$"
        with (
            patch.object(available_memory, "available_memory", return_value=5_000_000),
            pytest.raises(InputError, match=sentence),
        ):
            index.search(zeros[:1])
        with patch.object(available_memory, "available_memory", return_value=6_600_000):
            assert len(index.search(zeros[:1])[0]) == 10
