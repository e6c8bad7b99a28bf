from pathlib import Path

import numpy as np
import pytest

from helpers.release_0_1 import FILES, copy_of, read_arrays, read_json, run_command
from proxyhash.utils.legacy_names import upgrade_map_name


@pytest.mark.parametrize("name", ["model", "shallow"])
def test_model_gives_the_same_codes(name: str, tmp_path: Path, photos: Path) -> None:
    from proxyhash import Hasher

    expected, known = read_json("expected-models.json")[name], read_arrays("expected-models.npz")
    folder = copy_of(name, tmp_path)
    images = [photos / path for path in expected["images"]]
    for path in (None, folder / "model.onnx"):
        if path is not None:
            path.unlink(missing_ok=True)
        hasher = Hasher.load(folder)
        np.testing.assert_array_equal(hasher.encode(images), known[f"{name}/codes"])
        np.testing.assert_allclose(hasher.embed(images), known[f"{name}/outputs"], atol=1e-4)
    assert hasher.bits == expected["bits"]
    assert list(hasher.class_names) == expected["names"]
    if "classes" in expected:
        assert hasher.classify(images) == expected["classes"]


def test_model_measures_as_before(tmp_path: Path, photos: Path) -> None:
    from proxyhash.models.card import read_metrics

    folder = copy_of("model", tmp_path)
    measured, kept = run_command("evaluate", "model", folder, "--data", photos), read_metrics(FILES / "model")
    for name in ("map", "accuracy"):
        assert measured[name] == pytest.approx(kept[name], rel=1e-9)
    assert measured["binarization_error"] == pytest.approx(kept["binarization_error"], rel=1e-4)
    assert {metric["name"]: metric["value"] for metric in measured["metrics"]} == pytest.approx(
        {upgrade_map_name(metric["name"]): metric["value"] for metric in kept["metrics"]}, rel=1e-9
    )
    assert measured["protocol"] == {**kept["protocol"], "denominator": "relevant"}
    calibrated = run_command("index", "calibrate", folder, "--data", photos)
    assert calibrated["precision"] == pytest.approx(read_json("model/calibration.json")["precision"], rel=1e-9)


def test_features_in_the_cache_are_found_again(tmp_path: Path, photos: Path, cache: Path) -> None:
    before = {path.name for path in (cache / "features").iterdir()}
    measured = run_command("evaluate", "model", copy_of("shallow", tmp_path), "--data", photos)
    assert measured["map"] == pytest.approx(read_json("shallow/measured.json")["map"], rel=1e-9)
    assert {path.name for path in (cache / "features").iterdir()} == before
