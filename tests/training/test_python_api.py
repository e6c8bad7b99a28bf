"""`proxyhash.train` and `proxyhash.evaluate`: the same as the commands, from Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import proxyhash
from proxyhash import Hasher, InputError
from proxyhash.data import Dataset, load_dataset, make_split
from proxyhash.training import OptimConfig, TrainConfig, train_hashers

SMALL: dict[str, Any] = {"backbone": "convnet", "epochs": 2, "hidden_dim": 16}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYHASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def codes(hasher: Hasher, digits: Dataset) -> Any:
    pixels = digits.images.pixels_in_memory(np.arange(50))
    assert pixels is not None
    return hasher.encode(pixels)


def test_hasher_is_the_one_of_train_hashers(digits: Dataset) -> None:
    optim = OptimConfig.frozen(epochs=2, hidden_dim=16)
    config = TrainConfig(bits=(16,), settings={"triplet": 1.0}, backbone="convnet", optim=optim, seed=3)
    (expected,) = train_hashers(digits, make_split(digits, seed=3), config)
    hasher = proxyhash.train("digits", bits=16, settings={"triplet": 1.0}, seed=3, **SMALL)
    assert np.array_equal(codes(hasher, digits), codes(expected, digits))
    assert hasher.metadata["config"] == expected.metadata["config"]


def test_one_code_length_gives_a_hasher_and_several_give_a_list(digits: Dataset) -> None:
    single = proxyhash.train(digits, method="itq", backbone="convnet")
    assert isinstance(single, Hasher)
    assert single.bits == 32
    several = proxyhash.train(digits, bits=(8, 16), method="itq", backbone="convnet")
    assert [hasher.bits for hasher in several] == [8, 16]
    (listed,) = proxyhash.train(digits, bits=[8], method="itq", backbone="convnet")
    assert np.array_equal(codes(listed, digits), codes(several[0], digits))


def test_options_of_the_optimizer_may_be_given_by_themselves_or_together(digits: Dataset) -> None:
    for options in (
        {"epochs": 1, "lr": 0.01},
        {"optim": {"epochs": 1, "lr": 0.01}},
        {"optim": OptimConfig(epochs=3, lr=0.01), "epochs": 1},
        {"epochs": 1, "lr": 0.01, "batch_size": None, "optim": None},
    ):
        hasher = proxyhash.train(digits, bits=8, backbone="convnet", **options)
        optim = hasher.metadata["config"]["optim"]
        assert (optim["epochs"], optim["lr"], optim["batch_size"]) == (1, 0.01, 256)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epoch": 3}, r"^train has no setting 'epoch'; did you mean epochs\?$"),
        ({"backbon": "convnet"}, r"^train has no setting 'backbon'; did you mean backbone\?$"),
        ({"method": "shclmm"}, r"^There is no method 'shclmm'; did you mean shclm\?$"),
        ({"settings": {"tua": 3}}, r"^sHCLM has no setting 'tua'; did you mean tau\?$"),
        ({"optim": {"lrr": 3}}, r"^OptimConfig has no setting 'lrr'; did you mean lr\?$"),
        ({"optim": 3}, r"^optim must be a table, not 3\.$"),
        ({"bits": []}, r"^Code lengths must be different whole numbers from 1 upwards, not \(\)\.$"),
        ({"bits": "32"}, r"^TrainConfig: Expected `int`, got `str` - at `\$\.bits\[0\]`\.$"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        proxyhash.train("digits", **options)


def test_data_of_another_type_are_one_sentence() -> None:
    with pytest.raises(InputError, match=r"^Data of the type int have no length and no indices; give a map-style dataset"):
        proxyhash.train(3, method="itq")


def test_networks_and_datasets_of_users_are_trained() -> None:
    random = np.random.default_rng(0)
    images = [(random.integers(0, 256, (16, 16, 3), dtype=np.uint8), number % 3) for number in range(60)]
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    backbone = proxyhash.wrap_backbone(network, image_size=16)
    hasher = proxyhash.train(images, bits=8, backbone=backbone, transform="small", validation="none", epochs=1)
    assert hasher.backbone.config.name == "module/Sequential"
    assert hasher.encode(np.stack([image for image, _ in images])).shape == (60, 1)


def test_training_resumes_from_its_folder(digits: Dataset, tmp_path: Path) -> None:
    reports: list[dict[str, float]] = []
    first = proxyhash.train(digits, bits=8, run_dir=tmp_path / "run", report=reports.append, **SMALL)
    assert [metrics["epoch"] for metrics in reports] == [1, 2]
    again = proxyhash.train(digits, bits=8, run_dir=str(tmp_path / "run"), resume=True, report=reports.append, **SMALL)
    assert len(reports) == 2  # nothing was left to do
    assert np.array_equal(codes(first, digits), codes(again, digits))


def test_evaluation_is_on_the_split_of_the_training(digits: Dataset) -> None:
    hasher = proxyhash.train(digits, bits=8, protocol="transfer", fold=2, seed=5, **SMALL)
    trained_on = hasher.metadata["protocol"]["fingerprint"]
    assert proxyhash.evaluate(hasher, digits).split.fingerprint() == trained_on
    assert proxyhash.evaluate(hasher, "digits").split.fingerprint() == trained_on
    assert proxyhash.evaluate(hasher, digits, fold=1).split.fingerprint() != trained_on
    renamed = replace(digits, name="others")  # the default of data that were not trained on
    assert proxyhash.evaluate(hasher, renamed).split.protocol == "holdout"
    assert proxyhash.evaluate(hasher, renamed, protocol="transfer").split.fingerprint() == trained_on


def test_model_in_a_folder_is_evaluated_on_what_it_was_trained_on(tmp_path: Path) -> None:
    hasher = proxyhash.train("digits", bits=8, method="itq", backbone="convnet")
    hasher.save(tmp_path / "model")
    saved, direct = proxyhash.evaluate(tmp_path / "model"), proxyhash.evaluate(hasher)
    assert saved.map == pytest.approx(direct.map, abs=1e-3)
    assert direct.map > 0.25  # chance is 0.1
    assert direct.precision_recall is None
    assert proxyhash.evaluate(hasher, ks=(7,), detailed=True).precision_recall is not None


def test_hasher_of_a_data_set_object_says_that_it_is_needed_again(digits: Dataset, tmp_path: Path) -> None:
    hasher = proxyhash.train(digits, bits=8, method="itq", backbone="convnet")
    with pytest.raises(InputError, match=r"^The model was trained on a data set without a name or folder; pass the data"):
        proxyhash.evaluate(hasher)
    hasher.save(tmp_path / "model")
    assert "What it learned from was not recorded." in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert proxyhash.evaluate(tmp_path / "model", digits).map == pytest.approx(
        proxyhash.evaluate(hasher, digits).map, abs=1e-3
    )
    with pytest.raises(InputError, match="does not say what it was trained with; name the data with --data"):
        from proxyhash.index.model_calibration import calibrate_model

        calibrate_model(tmp_path / "model")
