"""Export to other programs and import from them, with these programs as oracles."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from usearch.index import Index as UsearchIndex

from helpers.codes import clustered_codes, make_keys
from helpers.exchange import COUNT, all_items, codes_of, make_index
from proxyhash import Index, InputError
from proxyhash.codes import unpack
from proxyhash.codes.bits import Packed
from proxyhash.codes.files import read_code_file
from proxyhash.index.exchange import npz_files, parquet_files
from proxyhash.index.exchange.item_lines import item_lines_path
from proxyhash.index.local import blocks, transactions
from proxyhash.index.local.index import LocalIndex

FORMATS = ("faiss", "usearch", "parquet", "npz")


def exported_keys(path: Path) -> list[str]:
    """Return the keys beside a file, in the way that the documentation shows."""
    with item_lines_path(path).open(encoding="utf-8", newline="\n") as lines:
        _, *items = map(json.loads, lines)
    return [item["key"] for item in items]


def assert_same_matches(index: Index, queries: Packed, keys: list[str], distances: Any, ids: Any) -> None:
    """Compare results of another program: equal distances, and equal keys except among ties at the k-th distance."""
    found = index.search(queries, len(distances[0]))
    for matches, theirs, numbers in zip(found, distances, ids, strict=True):
        assert [match.distance for match in matches] == sorted(int(distance) for distance in theirs)
        last = max(theirs)
        ours = {match.key for match in matches if match.distance < last}
        assert ours == {keys[number] for number, distance in zip(numbers, theirs, strict=True) if distance < last}


@pytest.mark.parametrize("bits", [3, 8, 60, 64, 200])
def test_faiss_finds_what_the_index_finds(tmp_path: Path, bits: int) -> None:
    with make_index(tmp_path / "i", bits) as index:
        assert index.export_file(tmp_path / "out.faiss") == len(index) == COUNT - 10
        engine = faiss.read_index_binary(str(tmp_path / "out.faiss"))
        assert isinstance(engine, faiss.IndexBinaryFlat)
        assert (engine.d, engine.ntotal) == (bits + -bits % 8, len(index))
        queries = codes_of(20, bits, 5)
        assert_same_matches(index, queries, exported_keys(tmp_path / "out.faiss"), *engine.search(queries, 50))


def test_clusters_become_inverted_lists_with_the_same_centroids(tmp_path: Path) -> None:
    with (
        patch.object(transactions, "MIN_CODES_FOR_CLUSTERS", 200),
        patch.object(blocks, "CODES_PER_BLOCK", 100),
        LocalIndex.open_folder(tmp_path / "i", bits=60) as index,
    ):
        index.add(codes_of(1000, 60, 0), make_keys(1000))
        centroids = index.store.centroids(index.store.active_version)
        assert centroids is not None
        index.export_file(tmp_path / "out.faiss")
        engine = faiss.read_index_binary(str(tmp_path / "out.faiss"))
        assert isinstance(engine, faiss.IndexBinaryIVF)
        coarse: Any = faiss.downcast_IndexBinary(engine.quantizer)
        np.testing.assert_array_equal(faiss.vector_to_array(coarse.xb).reshape(-1, 8), centroids)
        engine.nprobe = engine.nlist
        queries = codes_of(20, 60, 5)
        keys = exported_keys(tmp_path / "out.faiss")
        assert_same_matches(index, queries, keys, *engine.search(queries, 50))
        with Index.open(tmp_path / "again", bits=60) as again:
            again.import_file(tmp_path / "out.faiss")
            assert all_items(again) == all_items(index)


@pytest.mark.parametrize("bits", [3, 60, 64, 200])
def test_usearch_finds_what_the_index_finds(tmp_path: Path, bits: int) -> None:
    with make_index(tmp_path / "i", bits) as index:
        index.export_file(tmp_path / "out.usearch")
        engine = UsearchIndex.restore(str(tmp_path / "out.usearch"))
        assert engine is not None
        queries = codes_of(20, bits, 5)
        found = engine.search(queries, 50, exact=True)
        assert_same_matches(index, queries, exported_keys(tmp_path / "out.usearch"), found.distances, found.keys)
        near = engine.search(queries, 1)  # by the graph
        assert (near.distances[:, 0] >= found.distances[:, 0]).all()
        assert (near.distances[:, 0] == found.distances[:, 0]).mean() > 0.8


def test_parquet_is_a_table_that_other_programs_read(tmp_path: Path) -> None:
    with make_index(tmp_path / "i", 60) as index:
        index.export_file(tmp_path / "out.parquet")
        table = pq.read_table(tmp_path / "out.parquet")
        assert [str(field.type) for field in table.schema] == [
            "string",
            "list<element: string>",
            "fixed_size_binary[8]",
            "string",
        ]
        rows = zip(*(table.column(name).to_pylist() for name in ("key", "labels", "code")), strict=True)
        assert [(key, tuple(labels), code) for key, labels, code in rows] == all_items(index)


def test_npz_has_codes_and_labels_that_can_be_evaluated(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", bits=20) as index:
        index.add(codes_of(3, 20, 0), ["a", "b", "c"], [("dog",), (), ("cat",)])
        index.export_file(tmp_path / "out.npz")
        file = read_code_file(tmp_path / "out.npz", ("codes", "labels"))
        assert file.labels is not None
        assert (file.labels.tolist(), file.keys, file.bits) == (["dog", "", "cat"], ["a", "b", "c"], 20)
        index.add(codes_of(1, 20, 0), ["a"], [("dog", "cat")])
        index.export_file(tmp_path / "out.npz")
        file = read_code_file(tmp_path / "out.npz", ("codes", "labels"))
        assert file.labels is not None
        assert (file.label_names, file.labels.tolist()) == (["cat", "dog"], [[0, 0], [1, 0], [1, 1]])


def test_key_that_numpy_would_change_is_refused(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", bits=8) as index:
        index.add(codes_of(1, 8, 0), ["a\0"])
        with pytest.raises(InputError, match=r"choose another format than \.npz"):
            index.export_file(tmp_path / "out.npz")
        assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bits", [60, 64])
def test_import_restores_keys_labels_codes_and_order(tmp_path: Path, format: str, bits: int) -> None:
    with make_index(tmp_path / "i", bits) as index, Index.open(tmp_path / "again", bits=bits) as again:
        index.export_file(tmp_path / "codes", format)
        done = again.import_file(tmp_path / "codes", format)
        assert (done.added, done.replaced) == (len(index), 0)
        assert [(key, set(labels), code) for key, labels, code in all_items(again)] == [
            (key, set(labels), code) for key, labels, code in all_items(index)
        ]  # an .npz file has labels in the order of their names
        assert again.import_file(tmp_path / "codes", format).replaced == len(index)


TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


@given(items=st.dictionaries(TEXT, st.lists(st.text(st.characters(codec="utf-8"))), max_size=8), bits=st.integers(1, 70))
@settings(max_examples=25, deadline=None)
def test_parquet_keeps_any_key_and_label(
    tmp_path_factory: pytest.TempPathFactory, items: dict[str, list[str]], bits: int
) -> None:
    folder = tmp_path_factory.mktemp("exchange")
    with Index.open(folder / "i", bits=bits) as index, Index.open(folder / "again", bits=bits) as again:
        if items:
            index.add(codes_of(len(items), bits, 0), list(items), [tuple(labels) for labels in items.values()])
        index.export_file(folder / "out.parquet")
        again.import_file(folder / "out.parquet")
        assert all_items(again) == all_items(index)


@pytest.mark.parametrize("format", FORMATS)
def test_empty_index_is_exported_and_imported(tmp_path: Path, format: str) -> None:
    with Index.open(tmp_path / "i", bits=12) as index, Index.open(tmp_path / "again", bits=12) as again:
        assert index.export_file(tmp_path / f"out.{format}") == 0
        assert again.import_file(tmp_path / f"out.{format}").added == 0


def test_files_of_items_are_exported_as_paths(tmp_path: Path) -> None:
    from helpers.images import save_image
    from helpers.models import make_model
    from proxyhash.data import SkippedItems
    from proxyhash.index.folder_sync import add_folder

    save_image(np.zeros((16, 16, 3), np.uint8), tmp_path / "photos" / "a.png")
    with Index.open(tmp_path / "i", model=make_model(32, 0, tmp_path / "m")) as index:
        add_folder(index, tmp_path / "photos", SkippedItems())
        index.export_file(tmp_path / "out.parquet")
        assert pq.read_table(tmp_path / "out.parquet").column("path").to_pylist() == [str(tmp_path / "photos" / "a.png")]
        index.export_file(tmp_path / "out.npz")
        for path in (tmp_path / "out.parquet", tmp_path / "out.npz"):
            assert index.import_file(path).replaced == 1
            with (
                Index.open(tmp_path / "other", model=make_model(32, 1, tmp_path / "m2")) as other,
                pytest.raises(InputError, match="codes of another model than the index"),
            ):
                other.import_file(path)


def test_export_is_one_state_while_another_process_writes(tmp_path: Path) -> None:
    count = 500
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(np.zeros((count, 8), np.uint8), [str(key) for key in range(count)])
        writer = subprocess.Popen([sys.executable, "-m", "helpers.exchange", "write", str(tmp_path / "i"), str(count)])
        try:
            states: set[bytes] = set()
            deadline = time.monotonic() + 60
            while len(states) < 5 and time.monotonic() < deadline:
                index.export_file(tmp_path / "out.parquet")
                codes = pq.read_table(tmp_path / "out.parquet").column("code").to_pylist()
                assert len(codes) == count
                assert len(set(codes)) == 1
                states.add(codes[0])
            assert len(states) >= 5, "the other process wrote too little meanwhile"
        finally:
            writer.kill()
            writer.wait()


@pytest.mark.parametrize("format", FORMATS)
def test_killed_export_leaves_the_old_file(tmp_path: Path, format: str) -> None:
    path = tmp_path / "out" / f"codes.{format}"
    with patch.object(blocks, "CODES_PER_BLOCK", 100):
        make_index(tmp_path / "i").close()
    command = [sys.executable, "-m", "helpers.exchange", "export", str(tmp_path / "i"), str(path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert not path.exists()
    assert not item_lines_path(path).exists()
    with Index.open(tmp_path / "other", bits=64) as other:
        other.add(np.zeros((1, 8), np.uint8), ["only"])
        other.export_file(path)
        before = {file.name: file.read_bytes() for file in path.parent.glob("codes*")}
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert {file.name: file.read_bytes() for file in path.parent.glob("codes*")} == before
        assert other.import_file(path).replaced == 1


def test_items_of_another_export_are_refused(tmp_path: Path) -> None:
    with make_index(tmp_path / "i") as index, Index.open(tmp_path / "again", bits=64) as again:
        index.export_file(tmp_path / "one.faiss")
        old = (tmp_path / "one.faiss").read_bytes()
        index.add(codes_of(1, 64, 9), ["item/500"])
        index.export_file(tmp_path / "one.faiss")
        (tmp_path / "one.faiss").write_bytes(old)  # as if a crash came between the two files
        with pytest.raises(InputError, match="does not match its checksum; export it again"):
            again.import_file(tmp_path / "one.faiss")
        index.remove(["item/501"])
        index.export_file(tmp_path / "one.faiss")
        (tmp_path / "one.faiss").write_bytes(old)
        with pytest.raises(InputError, match="does not belong to"):
            again.import_file(tmp_path / "one.faiss")
        assert len(again) == 0


def flat(codes: Packed) -> Any:
    engine = faiss.IndexBinaryFlat(64)
    engine.add(codes)
    return engine


def inverted_lists(codes: Packed) -> Any:
    engine = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(64), 64, 4)
    engine.train(codes)
    engine.add_with_ids(codes, 1000 + np.arange(len(codes))[::-1])
    return engine


def id_map(kind: Any, inner: Callable[[Packed], Any]) -> Callable[[Packed], Any]:
    """Return a function that builds an index with ids of its own around another one."""

    def build(codes: Packed) -> Any:
        engine = inner(codes)
        engine.reset()
        outer = kind(engine)
        outer.add_with_ids(codes, 7 * np.arange(len(codes))[::-1])
        return outer

    return build


@pytest.mark.parametrize(
    ("build", "first", "step"),
    [
        (flat, 0, 1),
        (inverted_lists, 1039, -1),
        (id_map(faiss.IndexBinaryIDMap, flat), 7 * 39, -7),
        (id_map(faiss.IndexBinaryIDMap2, flat), 7 * 39, -7),
        (id_map(faiss.IndexBinaryIDMap, inverted_lists), 7 * 39, -7),
    ],
    ids=["flat", "inverted lists", "id map", "id map 2", "id map of inverted lists"],
)
def test_indexes_of_faiss_are_imported_with_ids_as_keys(
    tmp_path: Path, build: Callable[[Packed], Any], first: int, step: int
) -> None:
    codes = clustered_codes(40, 8, 3)
    faiss.write_index_binary(build(codes), str(tmp_path / "theirs.faiss"))
    with Index.open(tmp_path / "i", bits=64) as index:
        assert index.import_file(tmp_path / "theirs.faiss").added == 40
        for row in (0, 1, 39):
            assert index.code(f"theirs/{first + step * row}").tobytes() == codes[row].tobytes()


def test_code_length_of_padded_codes_is_given(tmp_path: Path) -> None:
    codes = codes_of(30, 60, 0)
    faiss.write_index_binary(flat(codes), str(tmp_path / "theirs.faiss"))
    with Index.open(tmp_path / "i", bits=60) as index:
        index.import_file(tmp_path / "theirs.faiss")
        assert unpack(index.code("theirs/4"), 60).tolist() == unpack(codes[4:5], 60).tolist()
    faiss.write_index_binary(flat(codes_of(30, 64, 0)), str(tmp_path / "theirs.faiss"))
    with (
        Index.open(tmp_path / "j", bits=60) as index,
        pytest.raises(InputError, match="Codes have bits set beyond the 60"),
    ):
        index.import_file(tmp_path / "theirs.faiss")


def test_usearch_files_without_items_are_imported(tmp_path: Path) -> None:
    codes = codes_of(30, 60, 0)
    engine = UsearchIndex(ndim=60, metric="hamming", dtype="b1")
    engine.add(np.arange(30)[::-1] * 3, codes)
    engine.save(str(tmp_path / "theirs.usearch"))
    with Index.open(tmp_path / "i", bits=60) as index:
        index.import_file(tmp_path / "theirs.usearch")
        assert index.code("theirs/0").tobytes() == codes[29].tobytes()
        assert len(index) == 30


def test_parquet_of_another_program_needs_codes_only(tmp_path: Path) -> None:
    import pyarrow as pa

    codes = [code.tobytes() for code in codes_of(6, 64, 0)]
    columns = {"code": pa.array(codes, pa.binary()), "labels": pa.array(["cat", None, "dog"] * 2)}
    pq.write_table(pa.table(columns), tmp_path / "theirs.parquet")
    with Index.open(tmp_path / "i", bits=64) as index:
        index.import_file(tmp_path / "theirs.parquet")
        assert all_items(index)[2] == ("theirs/2", ("dog",), codes[2])
        pq.write_table(pa.table({**columns, "key": list("abcdef")}), tmp_path / "theirs.parquet")
        index.import_file(tmp_path / "theirs.parquet")
        assert index.item("b").labels == ()


@pytest.mark.parametrize("size", [2, 100])
def test_key_that_occurs_twice_is_refused_before_anything_is_added(tmp_path: Path, size: int) -> None:
    import pyarrow as pa

    codes = [code.tobytes() for code in codes_of(6, 64, 0)]
    pq.write_table(pa.table({"code": codes, "key": list("abcdea")}), tmp_path / "theirs.parquet")
    np.savez(tmp_path / "theirs.npz", codes=codes_of(6, 64, 0), bits=64, keys=np.array(list("abcdea")))
    with (
        Index.open(tmp_path / "i", bits=64) as index,
        patch.object(parquet_files, "BATCH_SIZE", size),
        patch.object(npz_files, "BATCH_SIZE", size),
    ):
        for name in ("theirs.parquet", "theirs.npz"):
            with pytest.raises(InputError, match=r"Each key may occur once in .*; a occurs twice"):
                index.import_file(tmp_path / name)
        assert len(index) == 0


COLUMNS: dict[str, list[Any]] = {
    "year": [2020, None, -(2**60)],
    "price": [0.5, 2.0, None],
    "the title": ["é, 'x'", "", None],
    "day": [date(2024, 5, 31), None, datetime(1999, 1, 1, 12, 30, 0, 5, tzinfo=UTC)],
}


@pytest.mark.parametrize("format", FORMATS)
def test_columns_survive_an_exchange(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"out.{format}"
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(3, 8, 0), make_keys(3), columns=COLUMNS)
        index.add(clustered_codes(2, 8, 1), make_keys(2, 3))  # without columns
        index.export_file(path)
        expected = [dict(item.columns) for item in index.list_items()]
        with Index.open(tmp_path / "copy", bits=64) as copy:
            copy.import_file(path)
            assert copy.columns == index.columns == {"day": "date", "price": "number", "the title": "text", "year": "number"}
            assert [dict(item.columns) for item in copy.list_items()] == expected
            assert [type(value) for value in copy.item("item/00000").columns.values()] == [datetime, float, str, int]
            copy.export_file(tmp_path / f"again.{format}")
    if format == "parquet":
        assert pq.read_table(path).column("year").to_pylist() == [2020, None, -(2**60), None, None]
    if format in ("faiss", "usearch"):
        lines = item_lines_path(path).read_text(encoding="utf-8").splitlines()
        assert json.loads(lines[0])["format"] == "proxyhash.items/2"
        assert json.loads(lines[1])["columns"]["day"] == "2024-05-31T00:00:00Z"
        assert "columns" not in json.loads(lines[4])


@pytest.mark.parametrize("format", FORMATS)
def test_column_of_another_type_is_not_imported(tmp_path: Path, format: str) -> None:
    path = tmp_path / f"out.{format}"
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(3, 8, 0), make_keys(3), columns=COLUMNS)
        index.export_file(path)
    with Index.open(tmp_path / "copy", bits=64) as copy:
        copy.add(clustered_codes(1, 8, 0), ["other"], columns={"day": ["soon"]})
        with pytest.raises(InputError, match="has dates in the column day, and the index texts; rename the column"):
            copy.import_file(path)
        assert len(copy) == 1


def test_changed_column_of_an_exported_file_is_noticed(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(clustered_codes(3, 8, 0), make_keys(3), columns=COLUMNS)
        index.export_file(tmp_path / "out.faiss")
    lines = item_lines_path(tmp_path / "out.faiss")
    lines.write_text(lines.read_text(encoding="utf-8").replace('"year":2020', '"year":2021'), encoding="utf-8")
    with Index.open(tmp_path / "copy", bits=64) as copy, pytest.raises(InputError, match="does not match its checksum"):
        copy.import_file(tmp_path / "out.faiss")


def test_further_columns_of_other_parquet_files_are_imported(tmp_path: Path) -> None:
    table = pa.table({"code": [b"\0" * 8, b"\1" * 8], "year": pa.array([2020, None], pa.int16()), "sizes": [[1], [2]]})
    pq.write_table(table, tmp_path / "codes.parquet")
    with Index.open(tmp_path / "i", bits=64) as index:
        index.import_file(tmp_path / "codes.parquet")
        assert index.columns == {"year": "number"}
        assert [dict(item.columns) for item in index.list_items()] == [{"year": 2020}, {}]
