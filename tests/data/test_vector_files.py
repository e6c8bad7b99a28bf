"""Files of vectors: every format gives the same rows, keys and labels; invalid files are one sentence."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from proxyhash.data.vectors import VectorRows, read_labels, read_tags, read_vectors
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError

VECTORS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
KEYS = [f"item/{number}" for number in range(20)]
CLASSES = ["cat" if number % 3 else "dog" for number in range(20)]


def table(vectors: Any = None, **columns: Any) -> pa.Table:
    flat = pa.array((VECTORS if vectors is None else vectors).ravel())
    width = (VECTORS if vectors is None else vectors).shape[1]
    return pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, width), **columns})


def write_npy(folder: Path) -> Path:
    np.save(folder / "v.npy", VECTORS)
    return folder / "v.npy"


def write_npz(folder: Path) -> Path:
    np.savez(folder / "v.npz", vectors=VECTORS, keys=KEYS, labels=CLASSES)
    return folder / "v.npz"


def write_safetensors(folder: Path) -> Path:
    safetensors.numpy.save_file({"other": np.zeros(7, np.int64), "x": VECTORS}, folder / "v.safetensors")
    return folder / "v.safetensors"


def write_parquet(folder: Path) -> Path:
    pq.write_table(table(key=KEYS, label=CLASSES), folder / "v.parquet", row_group_size=7)
    return folder / "v.parquet"


def write_parquet_folder(folder: Path) -> Path:
    (folder / "parts").mkdir()
    whole = table(key=KEYS, label=CLASSES)
    pq.write_table(whole.slice(0, 11), folder / "parts" / "0.parquet")
    pq.write_table(whole.slice(11), folder / "parts" / "1.parquet")
    return folder / "parts"


def write_hugging_face(folder: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    content = {"embedding": VECTORS.tolist(), "key": KEYS, "label": CLASSES}
    features = datasets.Features(
        embedding=datasets.Sequence(datasets.Value("float32")), key=datasets.Value("string"), label=datasets.Value("string")
    )
    datasets.Dataset.from_dict(content, features=features).save_to_disk(str(folder / "hf"))
    return folder / "hf"


WRITERS = [write_npy, write_npz, write_safetensors, write_parquet, write_parquet_folder, write_hugging_face]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_vectors(write: Callable[[Path], Path], tmp_path: Path) -> None:
    file = read_vectors(write(tmp_path))
    np.testing.assert_array_equal(np.asarray(file.rows()), VECTORS)
    if write not in (write_npy, write_safetensors):
        assert file.keys == KEYS
        assert isinstance(file.labels, ClassLabels)
        assert [file.labels.names_of(number)[0] for number in range(20)] == CLASSES


@pytest.mark.parametrize("write", [write_npy, write_safetensors, write_parquet])
def test_vectors_are_memory_mapped(write: Callable[[Path], Path], tmp_path: Path) -> None:
    assert isinstance(read_vectors(write(tmp_path)).values, np.memmap)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_types_of_floats_are_read_as_float32(dtype: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(dtype))
    rows = read_vectors(tmp_path / "v.npy").rows()
    assert rows[:5].dtype == np.float32
    np.testing.assert_allclose(rows[:5], VECTORS[:5], rtol=1e-3)


def test_columns_of_a_table_are_chosen_by_name(tmp_path: Path) -> None:
    other = pa.array((VECTORS * 2).tolist(), pa.list_(pa.float64()))
    years = [2000 + number % 2 for number in range(20)]
    pq.write_table(table(second=other, name=KEYS, kind=CLASSES, year=years), tmp_path / "v.parquet")
    with pytest.raises(InputError, match="--vector-column; columns of floats are embedding, second"):
        read_vectors(tmp_path / "v.parquet")
    file = read_vectors(tmp_path / "v.parquet", vector_column="second", key_column="name", label_columns=["kind", "year"])
    np.testing.assert_allclose(np.asarray(file.rows()), VECTORS * 2)
    assert file.keys == KEYS
    assert isinstance(file.labels, TagLabels)
    assert file.labels.names == ("2000", "2001", "cat", "dog")
    assert file.labels.names_of(0) == ("2000", "dog")
    with pytest.raises(InputError, match="has no column nothing; it has embedding, second, name, kind, year"):
        read_vectors(tmp_path / "v.parquet", vector_column="nothing")


def test_lists_of_labels_are_tags(tmp_path: Path) -> None:
    tags = [["sky"], [], ["sea", "sky"], None] * 5
    pq.write_table(table(tags=pa.array(tags, pa.list_(pa.string()))), tmp_path / "v.parquet")
    labels = read_vectors(tmp_path / "v.parquet").labels
    assert isinstance(labels, TagLabels)
    assert [labels.names_of(number) for number in range(4)] == [("sky",), (), ("sea", "sky"), ()]


def broken_files(folder: Path) -> dict[str, str]:
    """Write invalid files, and return what the message about each must say."""
    np.save(folder / "objects.npy", np.array([{"a": 1}]), allow_pickle=True)
    np.savez(folder / "objects.npz", vectors=np.array([[None]]), allow_pickle=True)
    np.save(folder / "integers.npy", np.ones((3, 4), int))
    np.save(folder / "empty.npy", np.ones((0, 4)))
    np.save(folder / "flat.npy", np.ones(4))
    np.savez(folder / "two.npz", a=np.ones((3, 4)), b=np.ones((3, 4)))
    np.savez(folder / "keys.npz", vectors=np.ones((3, 4)), keys=["a"])
    np.savez(folder / "both.npz", vectors=np.ones((3, 4)), labels=[1, 2, 3], tags=np.eye(3))
    (folder / "text.npy").write_text("no array")
    (folder / "text.npz").write_text("no archive")
    (folder / "text.safetensors").write_text("no tensors")
    (folder / "text.parquet").write_text("no table")
    (folder / "vectors.csv").write_text("1,2")
    half = (folder / "half.npy").open("wb")
    np.save(half, VECTORS)
    half.truncate(200)
    half.close()
    pq.write_table(pa.table({"key": KEYS}), folder / "nothing.parquet")
    ragged = pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))
    pq.write_table(pa.table({"v": ragged}), folder / "ragged.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0], None], pa.list_(pa.float32()))}), folder / "null.parquet")
    pq.write_table(pa.table({"v": pa.array([], pa.list_(pa.float32()))}), folder / "rows.parquet")
    pq.write_table(table(key=[None, *KEYS[1:]]), folder / "key.parquet")
    return {
        "objects.npy": "holds Python objects, which are not read",
        "objects.npz": "holds Python objects, which are not read",
        "integers.npy": "must be a matrix .* of floats, not int64",
        "empty.npy": "there are no vectors in a matrix of shape",
        "flat.npy": "must be a matrix",
        "two.npz": "needs one matrix of floats, named vectors if there are several; it holds",
        "keys.npz": "there are 3 vectors and 1 keys",
        "both.npz": "holds labels and tags; keep one",
        "text.npy": "cannot be read|holds Python objects",
        "text.npz": "is not an .npz file",
        "text.safetensors": "cannot be read",
        "text.parquet": "cannot be read",
        "vectors.csv": "is not a file of vectors; they are read from .npy",
        "half.npy": "cannot be read",
        "nothing.parquet": "columns of floats are none",
        "ragged.parquet": "need the same width",
        "null.parquet": "row 1 has no vector",
        "rows.parquet": "holds no rows",
        "key.parquet": "row 0 has no key",
        "missing.npy": "There is no file",
    }


def test_invalid_file_is_one_sentence(tmp_path: Path) -> None:
    for name, message in broken_files(tmp_path).items():
        with pytest.raises(InputError, match=message) as caught:
            read_vectors(tmp_path / name)
        assert "\n" not in str(caught.value), name


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 5)), elements=st.floats(-9, 9, width=32)),
    st.integers(1, 40),
)
def test_normalized_rows_have_length_one(values: Any, chunk: int) -> None:
    rows = VectorRows(values, normalize=True)
    if not np.linalg.norm(values, axis=1).all():
        with pytest.raises(InputError, match="is all zeros and has no direction"):
            np.asarray(rows)
        return
    whole = np.concatenate([rows[part] for part in rows.slices(chunk)])
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(whole, np.asarray(rows))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_row_that_is_not_finite_is_named(value: float) -> None:
    values = VECTORS.copy()
    values[13, 2] = value
    rows = VectorRows(values, name="v.npy")
    assert rows[:13].shape == (13, 6)
    with pytest.raises(InputError, match=r"^v\.npy: row 13 is not finite, or too large\.$"):
        rows[10:20]
    with pytest.raises(InputError, match="row 13 is"):
        rows[np.array([3, 13])]


def test_labels_and_tags_of_files_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "numbers.npy", np.array([2, 0, -1]))
    assert read_labels(tmp_path / "numbers.npy", 3).names == ("0", "1", "2")
    (tmp_path / "names.txt").write_text("dog\n\ncat\n", encoding="utf-8")
    assert read_labels(tmp_path / "names.txt", 3).values.tolist() == [1, -1, 0]
    matrix = np.array([[1, 0], [0, 0], [1, 1]])
    scipy.sparse.save_npz(tmp_path / "sparse.npz", scipy.sparse.csr_matrix(matrix))
    np.savez(tmp_path / "tags.npz", tags=matrix, names=["sky", "sea"])
    np.testing.assert_array_equal(read_tags(tmp_path / "sparse.npz", 3).values, matrix)
    assert read_tags(tmp_path / "tags.npz", 3).names_of(2) == ("sky", "sea")
    for read, message in (
        (lambda: read_labels(tmp_path / "numbers.npy", 4), "there are 4 vectors and 3 labels"),
        (lambda: read_tags(tmp_path / "tags.npz", 2), "there are 2 vectors and 3 tags"),
        (lambda: read_tags(tmp_path / "numbers.npy", 3), "tags must be a matrix"),
        (lambda: read_labels(tmp_path / "tags.npz", 3), "has no array 'labels'"),
    ):
        with pytest.raises(InputError, match=message):
            read()


def test_further_columns_of_a_table_are_read(tmp_path: Path) -> None:
    times = [datetime(2024, 5, 31, 12, tzinfo=UTC)] * 19 + [None]
    whole = table(
        id=KEYS,
        label=CLASSES,
        year=pa.array([None, *range(19)], pa.int16()),
        price=pa.array([Decimal("1.5")] * 20, pa.decimal128(5, 2)),
        kind=pa.array(CLASSES).dictionary_encode(),
        day=pa.array([date(2024, 5, 31)] * 20),
        time=pa.array(times, pa.timestamp("ns", "Europe/Berlin")),
        sold=pa.array([True] * 20),
        path=KEYS,
        sizes=pa.array([[1, 2]] * 20),
    )
    pq.write_table(whole, tmp_path / "v.parquet", row_group_size=7)
    columns = read_vectors(tmp_path / "v.parquet").columns
    assert list(columns) == ["year", "price", "kind", "day", "time", "sold"]
    assert (columns["year"][:2], columns["price"][0], columns["kind"]) == ([None, 0], 1.5, CLASSES)
    assert (columns["day"][0], columns["time"], columns["sold"][0]) == (date(2024, 5, 31), times, True)
    assert list(read_vectors(tmp_path / "v.parquet", columns=["year", "label"]).columns) == ["year", "label"]
    assert read_vectors(tmp_path / "v.parquet", columns=[]).columns == {}
    for name, sentence in {"years": "has no column years", "sizes": "holds list<.*>, not numbers, texts or dates"}.items():
        with pytest.raises(InputError, match=sentence):
            read_vectors(tmp_path / "v.parquet", columns=[name])
    with pytest.raises(InputError, match="has no columns"):
        read_vectors(write_npy(tmp_path), columns=["year"])
