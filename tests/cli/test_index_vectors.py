"""Files of vectors on the command line."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.models import make_model, make_vector_model
from proxyhash.cli.app import main
from proxyhash.codes import pack

WIDTH, BITS = 12, 32
VECTORS = np.random.default_rng(0).normal(size=(40, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vector_model(WIDTH, BITS, 0, tmp_path_factory.mktemp("encoders") / "one")


@pytest.fixture(scope="module")
def other_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vector_model(WIDTH, 24, 1, tmp_path_factory.mktemp("encoders") / "two")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([str(argument) for argument in arguments])
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def write(path: Path, vectors: np.ndarray = VECTORS) -> Path:
    np.save(path, vectors)
    return path


def test_a_file_of_vectors_goes_in_and_is_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder: Path, other_encoder: Path
) -> None:
    file, index = write(tmp_path / "v.npy"), tmp_path / "i"
    out = run(capsys, "index", "add", file, "--model", encoder, "--index", index)
    assert out == f"40 added, 0 replaced, 0 unchanged, 0 removed. {index} holds 40 items.\n"
    assert "40 unchanged" in run(capsys, "index", "add", file, "--index", index)
    assert "40 replaced" in run(capsys, "index", "add", file, "--index", index, "--keep-vectors")
    queries = write(tmp_path / "queries.npy", VECTORS[:2])
    found = json.loads(run(capsys, "search", index, "--vectors", queries, "-k", 3, "--rerank", 9, "--json"))
    assert [matches["query"] for matches in found] == ["queries.npy:0", "queries.npy:1"]
    assert [matches["matches"][0]["key"] for matches in found] == ["v.npy:0", "v.npy:1"]
    assert found[1]["matches"][0]["row"] == 1
    assert "v.npy:1" in run(capsys, "search", index, "--vectors", queries, "--key", "v.npy:5")
    info = run(capsys, "index", "info", index)
    assert f"vectors       of {WIDTH} values; 40 are kept" in info
    assert "vectors from" in info
    file.unlink()
    assert "40 items have codes of the new model" in run(capsys, "index", "upgrade", index, "--model", other_encoder)
    assert json.loads(run(capsys, "index", "info", index, "--json"))["bits"] == 24
    assert "ok." in run(capsys, "index", "verify", index)


def test_columns_of_a_table_are_chosen(capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    lists = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), WIDTH)
    names = [f"n{row}" for row in range(40)]
    table = pa.table({"one": lists, "two": lists, "name": names, "kind": ["cat", "dog"] * 20})
    parquet.write_table(table, tmp_path / "v.parquet")
    options = ["--vector-column", "two", "--key-column", "name", "--label-column", "kind", "--prefix", "p/"]
    add = ["index", "add", tmp_path / "v.parquet", "--index", tmp_path / "i", "--model", encoder]
    assert "--vector-column" in fail(capsys, *add)
    assert not (tmp_path / "i").exists()
    assert "40 added" in run(capsys, *add, *options)
    found = json.loads(run(capsys, "search", tmp_path / "i", "--key", "p/n3", "--label", "dog", "-k", 1, "--json"))
    assert (found[0]["matches"][0]["key"], found[0]["matches"][0]["labels"]) == ("p/n3", ["dog"])


@pytest.mark.parametrize(
    ("name", "arrays", "sentence"),
    [
        ("nan.npy", np.where(np.arange(40)[:, None] == 39, np.nan, VECTORS), "row 39 is not finite"),
        ("zero.npy", np.where(np.arange(40)[:, None] == 39, 0, VECTORS), "row 39 is all zeros"),
        ("narrow.npy", VECTORS[:, 1:], "takes vectors of 12 values, not 11"),
        ("integers.npy", VECTORS.astype(np.int64), "must be a matrix"),
        ("flat.npy", VECTORS.ravel(), "must be a matrix"),
        ("objects.npy", VECTORS.astype(object), "Python objects"),
        ("twice.npz", {"vectors": VECTORS[:2], "keys": ["a", "a"]}, "a occurs twice"),
        ("labels.npz", {"vectors": VECTORS[:2], "labels": ["a"]}, "2 vectors and 1 labels"),
        ("keys.npz", {"vectors": VECTORS[:2], "keys": ["a"]}, "2 vectors and 1 keys"),
    ],
)
def test_invalid_files_are_refused_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    encoder: Path,
    name: str,
    arrays: np.ndarray | dict[str, object],
    sentence: str,
) -> None:
    file, index = tmp_path / name, tmp_path / "i"
    if isinstance(arrays, dict):
        np.savez(file, **arrays)  # type: ignore[arg-type]
    else:
        np.save(file, arrays, allow_pickle=True)
    assert sentence in fail(capsys, "index", "add", file, "--model", encoder, "--index", index)
    assert not index.exists()
    run(capsys, "index", "add", write(tmp_path / "good.npy", VECTORS[:1]), "--model", encoder, "--index", index)
    assert sentence in fail(capsys, "index", "add", file, "--index", index)
    assert json.loads(run(capsys, "index", "info", index, "--json"))["items"] == 1


def test_vectors_and_models_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxyhash.models.hasher.is_onnx_available", lambda: False)  # an export takes seconds
    file, model = write(tmp_path / "v.npy"), make_model(BITS, 0, tmp_path / "model")
    assert "does not take vectors" in fail(capsys, "index", "add", file, "--model", model, "--index", tmp_path / "i")
    assert "does not take vectors" in fail(
        capsys, "index", "add", tmp_path, "--model", model, "--index", tmp_path / "i", "--keep-vectors"
    )
    assert not (tmp_path / "i").exists()
    np.savez(tmp_path / "codes.npz", codes=pack(VECTORS >= 0), bits=WIDTH)
    run(capsys, "index", "import", tmp_path / "codes.npz", "--index", tmp_path / "codes")
    assert "no model that takes vectors" in fail(capsys, "search", tmp_path / "codes", "--vectors", file)
    run(capsys, "index", "add", file, "--model", encoder, "--index", tmp_path / "i")
    assert "there are no images to draw" in fail(
        capsys, "search", tmp_path / "i", "--vectors", file, "--show", tmp_path / "x.png"
    )
    assert "takes vectors, not images" in fail(capsys, "search", tmp_path / "i", tmp_path / "query.jpg")
    assert "There is no file" in fail(capsys, "index", "add", tmp_path / "none.npy", "--index", tmp_path / "i")


def test_encoder_is_calibrated_on_labeled_vectors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    encoder = make_vector_model(WIDTH, BITS, 0, tmp_path / "encoder")
    random = np.random.default_rng(0)
    vectors, labels = np.repeat(VECTORS[:4], 50, 0) + 0.1 * random.normal(size=(200, WIDTH)), np.repeat(np.arange(4), 50)
    np.savez(tmp_path / "labeled.npz", vectors=vectors, labels=labels)
    assert "labeled vectors" in fail(capsys, "index", "calibrate", encoder)
    assert "has no labels" in fail(capsys, "index", "calibrate", encoder, "--data", write(tmp_path / "v.npy"))
    found = json.loads(run(capsys, "index", "calibrate", encoder, "--data", tmp_path / "labeled.npz", "--json"))
    assert found["precision"][0] > 0.9 > found["precision"][-1]
    run(capsys, "index", "add", tmp_path / "labeled.npz", "--model", encoder, "--index", tmp_path / "i")
    matches = json.loads(run(capsys, "search", tmp_path / "i", "--key", "labeled.npz:0", "--json"))[0]
    assert matches["matched"] is True


def test_columns_of_a_table_filter_a_search(capsys: pytest.CaptureFixture[str], tmp_path: Path, encoder: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), WIDTH)
    table = pa.table({"embedding": vectors, "year": range(2000, 2040), "title": ["x", "y"] * 20, "day": ["2024-05-31"] * 40})
    pq.write_table(table, tmp_path / "v.parquet")
    np.save(tmp_path / "q.npy", VECTORS[:1])
    run(
        capsys,
        "index",
        "add",
        tmp_path / "v.parquet",
        "--model",
        encoder,
        "--index",
        tmp_path / "i",
        "--columns",
        "year,title",
    )
    assert "title (text), year (number)" in run(capsys, "index", "info", tmp_path / "i")
    where = "year >= 2010 and title in ('x', 'z')"
    out = run(capsys, "search", tmp_path / "i", "--vectors", tmp_path / "q.npy", "-k", "40", "--where", where, "--json")
    (found,) = json.loads(out)
    assert sorted(match["columns"]["year"] for match in found["matches"]) == list(range(2010, 2040, 2))
    assert "did you mean year" in fail(capsys, "search", tmp_path / "i", "--key", "v.parquet:0", "--where", "yaer > 3")
