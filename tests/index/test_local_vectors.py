"""Vectors in an index: adding, searching, keeping and encoding them again."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from helpers.index_content import index_content, kept_content
from helpers.models import load_encoder, make_model, make_vector_model
from proxyhash import Hasher, Index, InputError
from proxyhash.data import SkippedItems
from proxyhash.data.vectors import read_vectors
from proxyhash.index.backup import backup, restore
from proxyhash.index.local import array_blocks, item_arrays, transactions
from proxyhash.index.local.array_blocks import ArrayBlockInfo
from proxyhash.index.local.index import FILE, LocalIndex
from proxyhash.index.local.items import ItemRow
from proxyhash.index.local.schema import array_block_checksum, item_checksum
from proxyhash.index.maintenance import compact, verify
from proxyhash.index.salvage import salvage
from proxyhash.index.upgrade import upgrade
from proxyhash.index.vector_sync import add_vectors
from proxyhash.utils.errors import DamagedError

WIDTH, BITS = 12, 32
VECTORS = np.random.default_rng(0).normal(size=(300, WIDTH)).astype(np.float32)
KEYS = [f"key {row}" for row in range(300)]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    make_vector_model(WIDTH, BITS, 0, folder / "one")
    make_vector_model(WIDTH, 24, 1, folder / "two")
    make_vector_model(WIDTH + 1, BITS, 2, folder / "wide")
    return folder


@pytest.fixture
def index(tmp_path: Path, encoders: Path) -> LocalIndex:
    return LocalIndex.open_folder(tmp_path / "i", model=encoders / "one")


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with patch.object(array_blocks, "BYTES_PER_BLOCK", 10 * 4 * WIDTH):
        yield


def save(path: Path, vectors: np.ndarray = VECTORS) -> Path:
    np.save(path, vectors)
    return path


def test_vectors_are_encoded_and_found(index: LocalIndex, encoders: Path) -> None:
    index.add(VECTORS, KEYS, ["odd", "even"] * 150)
    assert (index.input, index.width) == ("vector", WIDTH)
    hasher = load_encoder(encoders / "one")
    expected = Index.search(index, hasher.encode(VECTORS[:5]), 20)
    found = index.search(VECTORS[:5].astype(np.float64), 20)
    assert [matches.matches for matches in found] == [matches.matches for matches in expected]
    assert [matches[0].distance for matches in found] == [0] * 5
    assert index.search(VECTORS[:1], 3, rerank=50)[0][0].key == "key 0"
    np.testing.assert_array_equal(index.code("key 7"), hasher.encode(VECTORS[7:8]))


def test_floats_are_never_embeddings_in_an_index_of_vectors(index: LocalIndex) -> None:
    index.add(VECTORS, KEYS)
    with pytest.raises(InputError, match=f"takes vectors of {WIDTH} values, not {BITS}"):
        index.search(np.ones((1, BITS), np.float32))


def test_torch_is_not_imported_to_tell_what_a_model_takes(index: LocalIndex) -> None:
    index.add(VECTORS, KEYS)
    script = (
        "import sys; from proxyhash import Index; index = Index.open(sys.argv[1]); "
        "assert (index.input, index.width, index.info().width) == ('vector', 12, 12); "
        "index.search(index.code('key 1')); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(index.folder)], check=True)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda v: v[:, :-1], "takes vectors of 12 values, not 11"),
        (lambda v: _with(v, np.nan), "row 3 is not finite"),
        (lambda v: _with(v, np.inf), "row 3 is not finite"),
        (lambda v: _with(v.astype(np.float64), 1e300), "row 3 is not finite"),
        (lambda v: np.where(np.arange(len(v))[:, None] == 3, 0, v), "row 3 is all zeros"),
        (lambda v: v.astype(object), "must be a matrix"),
        (lambda v: v[0], "must be a matrix"),
        (lambda v: v[None], "must be a matrix"),
        (lambda v: v.astype(np.int64), "must be a matrix"),
        (lambda v: [str(row) for row in v], "takes vectors, not images"),
    ],
)
def test_invalid_vectors_are_refused_in_one_sentence(
    index: LocalIndex, change: Callable[[np.ndarray], np.ndarray], sentence: str
) -> None:
    given = change(VECTORS[:10])
    with pytest.raises(InputError, match=sentence) as caught:
        index.add(given, KEYS[:10])
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=sentence):
        index.search(given)
    assert len(index) == 0


def _with(vectors: np.ndarray, value: float) -> np.ndarray:
    changed = vectors.copy()
    changed[3, 1] = value
    return changed


def test_invalid_keys_and_labels_are_refused(index: LocalIndex) -> None:
    with pytest.raises(InputError, match="occurs twice"):
        index.add(VECTORS[:2], ["a", "a"])
    with pytest.raises(InputError, match="as many labels"):
        index.add(VECTORS[:2], ["a", "b"], ["x"])
    with pytest.raises(InputError, match="need keys"):
        index.add(VECTORS[:2])
    assert len(index) == 0


def test_zero_vectors_are_taken_by_a_model_that_does_not_scale(tmp_path: Path) -> None:
    model = make_vector_model(WIDTH, BITS, 0, tmp_path / "m", normalize=False)
    with Index.open(tmp_path / "i", model=model) as index:
        index.add(np.zeros((1, WIDTH), np.float32), ["zero"])
        assert index.search(np.zeros((1, WIDTH), np.float16))[0][0].distance == 0


def test_only_vectors_are_kept(index: LocalIndex, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Only vectors can be kept"):
        index.add(np.zeros((1, BITS // 8), np.uint8), ["a"], keep_vectors=True)
    with Index.open(tmp_path / "codes", bits=8) as codes, pytest.raises(InputError, match="does not take vectors"):
        codes.add(np.zeros((1, 1), np.uint8), ["a"], keep_vectors=True)


def test_files_are_added_by_name_and_row_and_unchanged_afterwards(index: LocalIndex, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")
    assert add_vectors(index, read_vectors(file)).added == 300
    assert index.item("v.npy:7").row == 7
    assert index.item("v.npy:7").path == file
    assert not index.item("v.npy:7").has_image
    again = add_vectors(index, read_vectors(file))
    assert (again.added, again.replaced, again.unchanged) == (0, 0, 300)
    os.utime(file, ns=(1, 1))
    assert add_vectors(index, read_vectors(file)).replaced == 300
    assert verify(index).problems == ()
    match = index.search(VECTORS[9:10], 1)[0][0]
    assert (match.key, match.row, match.path) == ("v.npy:9", 9, file)


def test_keys_and_labels_of_a_file_are_stored(index: LocalIndex, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", vectors=VECTORS[:4], keys=["a", "b", "c", "d"], labels=["cat", "dog", "", "cat"])
    add_vectors(index, read_vectors(tmp_path / "v.npz"), prefix="p/")
    assert [item.key for item in index.list_items()] == ["p/a", "p/b", "p/c", "p/d"]
    assert index.item("p/b").labels == ("dog",)
    assert index.item("p/c").labels == ()
    assert {match.key for match in index.search(VECTORS[:1], 9, labels="cat")[0]} == {"p/a", "p/d"}


def test_prune_removes_keys_that_a_file_lacks(index: LocalIndex, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")
    add_vectors(index, read_vectors(file))
    save(file, VECTORS[:250])
    assert add_vectors(index, read_vectors(file), prune=True).removed == 50
    assert len(index) == 250


def test_keys_from_elsewhere_are_refused_before_anything_is_written(index: LocalIndex, tmp_path: Path) -> None:
    index.add(VECTORS[:1], ["v.npy:200"])
    with pytest.raises(InputError, match="--prefix"):
        add_vectors(index, read_vectors(save(tmp_path / "v.npy")))
    assert len(index) == 1


def test_bad_row_at_the_end_of_a_file_leaves_nothing_written(index: LocalIndex, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy", np.vstack([VECTORS, np.full((1, WIDTH), np.nan, np.float32)]))
    with patch.object(transactions, "CODES_PER_TRANSACTION", 50), pytest.raises(InputError, match="row 300 is not finite"):
        add_vectors(index, read_vectors(file))
    assert len(index) == 0


def test_stopped_add_is_completed_by_another(index: LocalIndex, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")

    def stop(work: str, share: float) -> None:
        if work == "adding vectors" and share > 0.5:
            raise KeyboardInterrupt

    with patch.object(transactions, "CODES_PER_TRANSACTION", 100):
        with pytest.raises(KeyboardInterrupt):
            add_vectors(index, read_vectors(file), progress=stop)
        assert len(index) == 200
        done = add_vectors(index, read_vectors(file))
    assert (done.added, done.unchanged) == (100, 200)
    assert verify(index).problems == ()


def test_other_column_of_a_file_needs_a_prefix(index: LocalIndex, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), WIDTH)
    pq.write_table(pa.table({"one": lists, "two": lists, "id": KEYS}), tmp_path / "v.parquet")
    add_vectors(index, read_vectors(tmp_path / "v.parquet", vector_column="one"))
    with pytest.raises(InputError, match="the column one"):
        add_vectors(index, read_vectors(tmp_path / "v.parquet", vector_column="two"))
    add_vectors(index, read_vectors(tmp_path / "v.parquet", vector_column="two"), prefix="two/")
    assert len(index) == 600


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_kept_vectors_are_those_that_were_added(index: LocalIndex, tmp_path: Path, dtype: type[np.floating]) -> None:
    vectors: np.ndarray = VECTORS.astype(dtype)
    add_vectors(index, read_vectors(save(tmp_path / "v.npy", vectors[:200])), keep_vectors=True)
    index.add(vectors[200:], KEYS[200:], keep_vectors=True)
    index.remove(["v.npy:5", *KEYS[210:260]])
    index.add(vectors[:3], [f"v.npy:{row}" for row in (50, 51, 52)])  # replaced without their vectors
    expected = np.float16 if dtype == np.float16 else np.float32
    kept = kept_content(index)
    rows = [*(row for row in range(200) if row not in (5, 50, 51, 52)), *range(200, 210), *range(260, 300)]
    np.testing.assert_array_equal(np.stack(list(kept.values())), vectors[rows].astype(expected))
    assert kept[min(kept)].dtype == expected
    assert verify(index).problems == ()
    compact(index)
    np.testing.assert_array_equal(np.stack(list(kept_content(index).values())), vectors[rows].astype(expected))
    infos = list(item_arrays.list_array_blocks(index.store, "vectors").values())
    assert {info.num_items for info in infos[:-1]} == {array_blocks.rows_per_block(WIDTH, expected().itemsize)}
    assert verify(index).problems == ()


@pytest.mark.usefixtures("small_blocks")
def test_vectors_of_two_types_are_kept_and_compacted(index: LocalIndex) -> None:
    for turn in range(6):
        part = slice(50 * turn, 50 * turn + 50)
        index.add(VECTORS[part].astype([np.float16, np.float32][turn % 2]), KEYS[part], keep_vectors=True)
    index.remove([KEYS[row] for row in range(0, 300, 3)])
    before = {item_id: vector.tobytes() for item_id, vector in kept_content(index).items()}
    compact(index)
    assert {item_id: vector.tobytes() for item_id, vector in kept_content(index).items()} == before
    assert verify(index).problems == ()


def test_vectors_are_kept_by_a_second_add_of_the_same_file(index: LocalIndex, tmp_path: Path) -> None:
    file = read_vectors(save(tmp_path / "v.npy"))
    add_vectors(index, file)
    assert add_vectors(index, file, keep_vectors=True).replaced == 300
    assert add_vectors(index, file, keep_vectors=True).unchanged == 300
    assert index.info().kept_vectors == 300


@pytest.mark.parametrize("keep_vectors", [True, False])
def test_upgrade_encodes_vectors_again(index: LocalIndex, encoders: Path, tmp_path: Path, keep_vectors: bool) -> None:
    file = save(tmp_path / "v.npy")
    add_vectors(index, read_vectors(file), keep_vectors=keep_vectors)
    if keep_vectors:
        file.unlink()
    hasher = load_encoder(encoders / "two")
    assert upgrade(index, hasher, SkippedItems()) == 300
    assert index.bits == 24
    codes = hasher.encode(VECTORS)
    for row in (0, 150, 299):
        np.testing.assert_array_equal(index.code(f"v.npy:{row}"), codes[row : row + 1])
    assert verify(index).problems == ()


def test_upgrade_keeps_columns(index: LocalIndex, encoders: Path) -> None:
    titles = [None if row % 3 == 0 else f"title {row % 7}" for row in range(300)]
    index.add(VECTORS, KEYS, keep_vectors=True, columns={"year": range(300), "title": titles})
    where = "year >= 100 and title in ('title 2', 'title 5')"
    before = {row.key: dict(row.columns) for row in index.list_items(limit=300)}
    found = index.search(VECTORS[:1], 300, where=where)[0]
    assert upgrade(index, load_encoder(encoders / "two"), SkippedItems()) == 300
    assert {row.key: dict(row.columns) for row in index.list_items(limit=300)} == before
    assert set(index.search(VECTORS[:1], 300, where=where)[0].keys) == set(found.keys)
    assert len(found) == sum(row >= 100 and titles[row] in ("title 2", "title 5") for row in range(300))


def test_upgrade_takes_a_copied_file_with_the_same_content(index: LocalIndex, encoders: Path, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")
    add_vectors(index, read_vectors(file))
    os.utime(file, ns=(1, 1))
    assert upgrade(index, load_encoder(encoders / "two"), SkippedItems()) == 300


def test_upgrade_refuses_vectors_that_changed(index: LocalIndex, encoders: Path, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")
    add_vectors(index, read_vectors(file))
    before = index_content(index)
    save(file, np.roll(VECTORS, 1, 0))
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputError, match="cannot be read any more"):
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
    save(file, np.vstack([VECTORS[:200], -VECTORS[200:]]))
    os.utime(file, ns=(1, 1))
    with pytest.raises(InputError, match="100 vectors cannot be read any more"):
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
    assert index_content(index) == before
    assert upgrade(index, load_encoder(encoders / "two"), SkippedItems(), drop_unreadable=True) == 200
    assert verify(index).problems == ()


def test_upgrade_without_originals_changes_nothing(index: LocalIndex, encoders: Path, tmp_path: Path) -> None:
    file = save(tmp_path / "v.npy")
    add_vectors(index, read_vectors(file))
    versions, before = index.store.list_versions(), index_content(index)
    file.unlink()
    with pytest.raises(InputError, match="were not kept; nothing was changed"):
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
    index.add(VECTORS[:1], ["array"])
    with pytest.raises(InputError, match="no vector of array"):
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
    index.remove(["array"])
    assert index.store.list_versions().keys() == versions.keys()
    assert index_content(index) == before
    assert len(list((index.folder / "models").iterdir())) == 1


def test_upgrade_refuses_models_of_another_input(index: LocalIndex, encoders: Path, tmp_path: Path) -> None:
    index.add(VECTORS, KEYS, keep_vectors=True)
    with patch("proxyhash.models.hasher.is_onnx_available", return_value=False):  # an export takes seconds
        image_model = make_model(BITS, 0, tmp_path / "images")
    with pytest.raises(InputError, match="takes vectors of 13 values"):
        upgrade(index, load_encoder(encoders / "wide"), SkippedItems())
    with pytest.raises(InputError, match="index of vectors, and the new model takes images"):
        upgrade(index, Hasher.load(image_model), SkippedItems())


@pytest.mark.usefixtures("small_blocks")
def test_backup_and_restore_copy_vectors(index: LocalIndex, tmp_path: Path) -> None:
    add_vectors(index, read_vectors(save(tmp_path / "v.npy")), keep_vectors=True)
    first = backup(index, tmp_path / "b")
    assert first.array_blocks_copied == 30
    index.remove(["v.npy:0"])
    index.add(VECTORS[:5], KEYS[:5], keep_vectors=True)
    second = backup(index, tmp_path / "b")
    assert second.array_blocks_copied == 2
    restore(tmp_path / "b", tmp_path / "r")
    with LocalIndex.open_folder(tmp_path / "r") as restored:
        assert index_content(restored) == index_content(index)
        assert {key: value.tolist() for key, value in kept_content(restored).items()} == {
            key: value.tolist() for key, value in kept_content(index).items()
        }
        assert restored.item("v.npy:8") == index.item("v.npy:8")


STATEMENTS = [
    "UPDATE array_blocks SET data = zeroblob(length(data)) WHERE number = 1",
    "UPDATE array_blocks SET item_ids = zeroblob(length(item_ids)) WHERE number = 1",
    "UPDATE array_blocks SET max_id = max_id + 1 WHERE number = 1",
    "DELETE FROM array_blocks WHERE number = 1",
    "UPDATE items SET file_row = 8 WHERE file_row = 7",
    "UPDATE items SET file_row = NULL WHERE file_row = 7",
    "UPDATE sources SET vector_column = 'x'",
    "UPDATE array_blocks SET array = 'other' WHERE number = 1",
    "UPDATE array_blocks SET generation = generation + 1 WHERE number = 1",
    "UPDATE arrays SET num_items = num_items - 1",
    "UPDATE arrays SET name = 'other'",
    "UPDATE arrays SET settings = '[]'",
    "DELETE FROM arrays",
    "UPDATE meta SET value = value - 1 WHERE name = 'arrays_checksum'",
]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("statement", STATEMENTS)
def test_changed_rows_of_vectors_are_noticed(index: LocalIndex, encoders: Path, tmp_path: Path, statement: str) -> None:
    add_vectors(index, read_vectors(save(tmp_path / "v.npy")), keep_vectors=True)
    index.close()
    with closing(sqlite3.connect(index.folder / FILE)) as connection:
        connection.execute(statement)
        connection.commit()
    with pytest.raises(DamagedError), LocalIndex.open_folder(index.folder) as changed:
        index_is_ok = verify(changed).ok
        assert not index_is_ok
        upgrade(changed, load_encoder(encoders / "two"), SkippedItems())
        changed.item("v.npy:7")


HOSTILE: list[tuple[str, dict[str, Any]]] = [
    ("array_blocks", {"width": 0, "data": b""}),
    ("array_blocks", {"num_items": "many"}),
    ("array_blocks", {"num_items": 0}),
    ("array_blocks", {"dtype": "O"}),
    ("array_blocks", {"width": 1_000_000_000}),
    ("array_blocks", {"item_ids": "text"}),
    ("items", {"file_row": "text"}),
    ("items", {"file_row": -1}),
    ("items", {"file_row": 10**12}),
]


@pytest.mark.parametrize(("table", "changes"), HOSTILE)
def test_hostile_values_with_right_checksums_are_refused(
    index: LocalIndex, encoders: Path, tmp_path: Path, table: str, changes: dict[str, Any]
) -> None:
    """Someone who knows the format can write any values with their checksums."""
    add_vectors(index, read_vectors(save(tmp_path / "v.npy", VECTORS[:5])), keep_vectors=table == "array_blocks")
    store = index.store
    identity = "number = 1" if table == "array_blocks" else "item_id = 0"
    with store.writing():
        for name, value in changes.items():
            store.run(f"UPDATE {table} SET {name} = ? WHERE {identity}", value)
        if table == "items":
            row = store.rows(f"SELECT {', '.join(ItemRow._fields)} FROM items WHERE {identity}")[0]
            store.run(f"UPDATE items SET checksum = ? WHERE {identity}", item_checksum(*row))
        else:
            row = store.rows(f"SELECT {', '.join(ArrayBlockInfo._fields)} FROM array_blocks WHERE {identity}")[0]
            array = item_arrays.list_arrays(store)["vectors"]
            new = array_block_checksum("vectors", array.generation, 1, *row)
            store.run(f"UPDATE array_blocks SET info_checksum = ? WHERE {identity}", new)
            count = row[0] if isinstance(row[0], int) else 5
            item_arrays._write_info(store, "vectors", array._replace(num_items=count, blocks_checksum=new))
    with pytest.raises(InputError):
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
    index.close()
    salvage(index.folder, tmp_path / "saved")


@pytest.mark.usefixtures("small_blocks")
def test_salvage_saves_vectors_and_references(index: LocalIndex, tmp_path: Path) -> None:
    add_vectors(index, read_vectors(save(tmp_path / "v.npy")), keep_vectors=True)
    index.remove(["v.npy:3"])
    before, items = kept_content(index), index_content(index)
    index.close()
    report = salvage(index.folder, tmp_path / "whole")
    assert report.complete
    with closing(sqlite3.connect(index.folder / FILE)) as connection:
        connection.execute("UPDATE array_blocks SET data = zeroblob(length(data)) WHERE number = 2")
        connection.commit()
    damaged = salvage(index.folder, tmp_path / "part")
    assert damaged.saved == 299
    assert damaged.notes == ("10 kept vectors are lost; their items are not.",)
    for name, count in (("whole", 299), ("part", 289)):
        with LocalIndex.open_folder(tmp_path / name) as saved:
            kept = kept_content(saved)
            assert len(kept) == count
            assert all(before[item_id].tobytes() == vector.tobytes() for item_id, vector in kept.items())
            assert index_content(saved) == items


def test_processes_that_search_by_vector_see_an_upgrade(index: LocalIndex, encoders: Path) -> None:
    index.add(VECTORS, KEYS, keep_vectors=True)
    with LocalIndex.open_folder(index.folder) as other:
        assert other.search(VECTORS[:1], 1)[0][0].distance == 0
        upgrade(index, load_encoder(encoders / "two"), SkippedItems())
        assert other.search(VECTORS[5:6], 1)[0].keys == ["key 5"]
        assert other.bits == 24


def test_model_in_an_index_is_checked(index: LocalIndex) -> None:
    index.add(VECTORS[:2], KEYS[:2])
    index.close()
    config = next((index.folder / "models").glob("*/config.json"))
    config.write_text(config.read_text().replace('"in_features": 12', '"in_features": 13'))
    with LocalIndex.open_folder(index.folder) as changed, pytest.raises(InputError, match="damaged"):
        changed.search(VECTORS[:1])


def test_index_without_its_model_is_searched_by_code_only(index: LocalIndex, tmp_path: Path) -> None:
    index.add(VECTORS[:2], KEYS[:2])
    index.close()
    shutil.copytree(index.folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "models")
    with LocalIndex.open_folder(tmp_path / "copy") as without, pytest.raises(InputError, match="is not a model"):
        without.search(VECTORS[:1])
