"""Files of release 0.2, read by this release; tests/fixtures/make_release_0_2.py wrote them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxyhash.utils.errors import InputError

FILES = Path(__file__).parents[1] / "fixtures" / "release-0.2"
EXPECTED: dict[str, Any] = json.loads((FILES / "expected.json").read_text())


SHARD_CODES, SHARD_KEYS = np.arange(6, dtype=np.uint8).reshape(3, 2), ["a.png", "b.png", "ü.png"]


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    with np.load(FILES / "expected.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.mark.parametrize("has_onnx", [True, False])
def test_model_gives_the_same_codes(tmp_path: Path, arrays: dict[str, np.ndarray], has_onnx: bool) -> None:
    from proxyhash import Hasher

    folder = Path(shutil.copytree(FILES / "model", tmp_path / "model"))
    if not has_onnx:
        (folder / "model.onnx").unlink()
    hasher = Hasher.load(folder)
    assert (hasher.onnx is not None) == has_onnx
    np.testing.assert_allclose(hasher.embed(arrays["images"]), arrays["outputs"], atol=1e-4)
    certain = (np.abs(arrays["outputs"]) > 0.02).all(1)
    np.testing.assert_array_equal(hasher.encode(arrays["images"])[certain], arrays["codes"][certain])
    assert hasher.classify(arrays["images"]) == EXPECTED["model"]["classes"]


def test_names_of_a_model_stay(tmp_path: Path) -> None:
    from proxyhash.models.storage import config_sha256, fingerprint

    folder = Path(shutil.copytree(FILES / "model", tmp_path / "model"))
    assert fingerprint(folder) == EXPECTED["model"]["fingerprint"]
    assert config_sha256(folder) == EXPECTED["model"]["config_sha256"]


def test_calibration_and_metrics_are_read() -> None:
    from proxyhash.index import Calibration
    from proxyhash.models.card import read_metrics

    calibration = Calibration.load(FILES / "model", 8)
    assert calibration is not None
    assert calibration.precision.tolist() == json.loads((FILES / "model/calibration.json").read_text())["precision"]
    assert 0.1 < read_metrics(FILES / "model")["map"] < 1


def test_proxies_are_read() -> None:
    from proxyhash import ProxySet

    assert ProxySet.load(FILES / "proxies.safetensors").as_dict() == EXPECTED["proxies"]
    assert ProxySet.load(FILES / "model/proxies.safetensors").bits == 8


def test_shards_and_code_files_are_read() -> None:
    from proxyhash.codes.files import read_code_file
    from proxyhash.models.code_shards import read_shard

    shard = read_shard(FILES / "shards/000000-of-000001.npz")
    np.testing.assert_array_equal(shard.codes, SHARD_CODES)
    assert (shard.keys, shard.labels) == (SHARD_KEYS, [("x",), (), ("y", "z")])
    found = (shard.bits, shard.model, shard.images, shard.number, shard.total, shard.num_skipped)
    assert found == (12, "m" * 16, "i", 0, 1, 0)
    file = read_code_file(FILES / "codes.npz")
    np.testing.assert_array_equal(file.codes, SHARD_CODES)
    assert (file.bits, file.keys) == (12, SHARD_KEYS)


def test_records_and_tuned_settings_are_read(tmp_path: Path) -> None:
    from proxyhash.experiments import Grid
    from proxyhash.experiments.records import read_records
    from proxyhash.experiments.tuned import tuned_grids

    (record,) = read_records(FILES / "records")
    assert (record.name, record.bits, record.metrics["map"]) == (EXPECTED["record"], 8, 0.5)
    assert record.metrics["precision_recall"] == {"recall": [0.0, 1.0], "precision": [1.0, 0.1]}
    wanted, copy = Grid("digits", ("itq",), (8,)), tmp_path / "chosen.toml"
    with pytest.raises(InputError, match=r"add a table \[tuned_for\] with dataset, protocol and backbone"):
        tuned_grids(wanted, FILES / "records")
    purpose = '[tuned_for]\ndataset = "digits"\nprotocol = "holdout"\nbackbone = "efficientnet_lite0"\n'
    copy.write_text((FILES / "records/chosen.toml").read_text() + purpose)
    (grid,) = tuned_grids(wanted, copy)
    assert grid.settings == {"itq": {"iterations": 50}}


def test_quickstart_is_resumed() -> None:
    from proxyhash.quickstart.run import RunState

    state = RunState.read(FILES / "quickstart", "data")
    assert state.steps == {"training": {"command": ["train", "photos"], "result": {"map": 0.5}}}


def test_finished_run_is_resumed_without_a_step(tmp_path: Path) -> None:
    from proxyhash.training import OptimConfig, TrainConfig
    from proxyhash.training.run import train_models

    optim = OptimConfig.frozen(epochs=2, batch_size=64, hidden_dim=0)
    config = TrainConfig(data="digits", bits=(8,), method="shclm", backbone="convnet", image_size=16, optim=optim)
    for name in ("model", "model.run"):
        shutil.copytree(FILES / name, tmp_path / name)
    works: list[str] = []
    trained = train_models(config, tmp_path / "model", resume=True, progress=lambda work, _: works.append(work))
    assert not [work for work in works if work.startswith("training")]
    validation = trained.hashers[0].metadata["validation"]
    assert validation["epoch"] == EXPECTED["model"]["validation"]["epoch"]
    assert validation["map"] == EXPECTED["model"]["validation"]["map"]


def test_cached_features_are_found(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    from proxyhash.data import Dataset
    from proxyhash.data.images import ArrayImages
    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.feature_cache import cached_features

    folder = Path(shutil.copytree(FILES / "features", tmp_path / "features"))
    dataset = Dataset("fixed", ArrayImages(arrays["images"]))
    backbone = create_backbone("convnet", pretrained=False, seed=0)
    features = cached_features(
        dataset, backbone, get_transform("small", 16), folder=folder, progress=lambda *_: pytest.fail("computed again")
    )
    assert features.folder.name == EXPECTED["features"]
    assert features.readable.all()


def test_index_gives_the_same_answers(tmp_path: Path) -> None:
    from proxyhash import Index
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.maintenance import verify

    expected = EXPECTED["index"]
    folder = Path(shutil.copytree(FILES / "index", tmp_path / "index"))
    shutil.copytree(FILES / "model", folder / "models" / EXPECTED["model"]["fingerprint"])
    queries = np.array(expected["queries"], np.uint8)
    with Index.open(folder, model=FILES / "model") as index:
        assert isinstance(index, LocalIndex)
        assert verify(index).problems == ()
        found = [matches.as_dict() for matches in index.search(queries, 20)]
        for matches in found:  # later releases also tell how they were found
            assert {name: matches.pop(name) for name in ("plan", "compared")} == {"plan": "scan", "compared": 18}
            matches.pop("refined", None)
        assert json.loads(json.dumps(found)) == expected["found"]
        item = index.item("ü/7")
        assert [item.item_id, list(item.labels)] == expected["item"]
        index.add(queries, ["a", "b", "c"])
        assert len(index) == len(found[0]["matches"]) + 3
