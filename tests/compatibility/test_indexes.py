import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.release_0_1 import FILES, as_lists, copy_of, index_folder, read_arrays, read_json, run_command, same_processor


@pytest.mark.parametrize("name", ["scanned", "clustered"])
def test_scanned_or_clustered_index_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder(f"{name}-index", tmp_path), read_json(f"{name}-index/expected.json")
    queries = np.array(expected["queries"], np.uint8)
    with Index.open(folder) as index:
        assert (index.info().plan == "scan") == (name == "scanned"), "clusters that are on disk are used"
        assert [as_lists(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
        assert [as_lists(matches) for matches in index.range_search(queries, expected["radius"])] == expected["within"]
    assert run_command("index", "verify", folder)["ok"]


@pytest.mark.parametrize("name", ["scanned", "clustered"])
def test_index_takes_and_loses_items(name: str, tmp_path: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder(f"{name}-index", tmp_path), read_json(f"{name}-index/expected.json")
    queries = np.array(expected["queries"], np.uint8)
    with Index.open(folder) as index:
        before = len(index)
        index.add(queries, [f"new {number}" for number in range(len(queries))], ["new"] * len(queries))
        assert {"new 0", "new 1"} <= {match.key for matches in index.range_search(queries[:2], 0) for match in matches}
        index.remove([f"new {number}" for number in range(len(queries))])
        assert len(index) == before
        assert [as_lists(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
    assert run_command("index", "verify", folder)["ok"]
    run_command("index", "compact", folder)
    with Index.open(folder) as index:
        assert [as_lists(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]


def test_clustered_index_is_searched_approximately_as_before(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    from proxyhash import Index

    expected = read_json("clustered-index/expected.json")
    with Index.open(index_folder("clustered-index", tmp_path)) as index:
        found = index.search(np.array(expected["queries"], np.uint8), expected["k"], nprobe=4)
    assert [[match.distance for match in matches] for matches in found] == [
        matches["distances"] for matches in expected["approximate"]["nearest"]
    ]


def test_index_of_images_gives_the_same_answers(tmp_path: Path, photos: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder("photos-index", tmp_path), read_json("photos-index/expected.json")
    queries = [photos / name for name in expected["queries"]]
    with Index.open(folder, model=copy_of("model", tmp_path)) as index:  # its own model, by the fingerprint
        assert index.model == read_json("expected-models.json")["model"]["fingerprint"]
        assert [as_lists(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
        assert [as_lists(matches) for matches in index.range_search(queries, expected["radius"])] == expected["within"]
        item = index.item(expected["item"]["key"])
        assert list(item.labels) == expected["item"]["labels"]
        assert index.info().calibrated
        reranked = index.search(queries, expected["k"], rerank=expected["reranked"]["rerank"])
        for matches, keys in zip(reranked, expected["reranked"]["keys"], strict=True):
            assert set(keys[:3]) & {match.key for match in matches}
            if same_processor():
                assert [match.key for match in matches] == keys
    assert run_command("index", "verify", folder)["ok"]


def test_index_knows_its_model_when_that_is_saved_again(tmp_path: Path) -> None:
    from proxyhash import Hasher, Index

    folder, model = index_folder("photos-index", tmp_path), copy_of("model", tmp_path)
    Hasher.load(model).save(tmp_path / "again")
    with Index.open(folder, model=tmp_path / "again") as index:
        assert index.model == read_json("expected-models.json")["model"]["fingerprint"]


def test_shards_are_not_encoded_again(tmp_path: Path, photos: Path) -> None:
    shards, model = copy_of("shards", tmp_path), copy_of("model", tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    done = run_command("encode", model, photos, "--shards", shards, "--shard-size", 30)
    assert (done["written"], done["existing"]) == (0, 3)
    assert {path.name: path.stat().st_mtime_ns for path in shards.iterdir()} == before


def test_shards_and_files_of_codes_are_imported(tmp_path: Path, photos: Path) -> None:
    from proxyhash import Index

    codes = read_arrays("expected-models.npz")["model/all_codes"]
    keys = [path.relative_to(photos).as_posix() for path in sorted(photos.glob("*/*.png"))]
    run_command(
        "index", "import", copy_of("shards", tmp_path), "--model", copy_of("model", tmp_path), "--index", tmp_path / "one"
    )
    shutil.copyfile(FILES / "codes.npz", tmp_path / "codes.npz")
    run_command("index", "import", tmp_path / "codes.npz", "--index", tmp_path / "two")
    for name in ("one", "two"):
        with Index.open(tmp_path / name) as index:
            assert len(index) == len(keys)
            np.testing.assert_array_equal(np.concatenate([index.code(key) for key in keys]), codes)
            assert index.item("two/012.png").labels == (("two",) if name == "one" else ())
