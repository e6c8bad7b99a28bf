"""Shallow methods as models: the codes of the fit, from images, with labels and without."""

from pathlib import Path

import numpy as np
import pytest
import torch

from proxyhash.data import load_dataset, make_split
from proxyhash.evaluation.hasher import evaluate_hasher, load_eval_data
from proxyhash.methods import LinearEncoder, TrainingData
from proxyhash.models import feature_cache
from proxyhash.models.hasher import Hasher
from proxyhash.training.config import TrainConfig
from proxyhash.training.features import fit_method
from proxyhash.training.train import train_hashers
from proxyhash.utils.errors import InputError

FEATURES = np.random.default_rng(0).normal(3, 1, (80, 24)).astype(np.float32)
LABELS = np.arange(80) % 4


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path))
    for module in ("extraction", "hasher"):
        monkeypatch.setattr(f"proxyhash.models.{module}.is_onnx_available", lambda: False)


@pytest.mark.parametrize("name", ["itq", "itq-cca", "lsh", "random-rotation"])
def test_head_gives_the_codes_of_the_encoder(name: str) -> None:
    encoder = fit_method(name, TrainingData.from_arrays(12, FEATURES, LABELS))
    assert isinstance(encoder, LinearEncoder)
    head = encoder.to_head()
    with torch.inference_mode():
        nu = head(torch.from_numpy(FEATURES)).numpy()
    sure = np.abs(encoder.embed(FEATURES)) > 1e-4  # of a projection: nearer to zero, rounding decides
    assert np.array_equal((nu >= 0)[sure], (encoder.embed(FEATURES) >= 0)[sure])
    assert np.abs(nu).max() <= 1


@pytest.mark.parametrize("name", ["ksh", "sdh"])
def test_kernel_head_gives_the_codes_of_the_encoder(name: str) -> None:
    encoder = fit_method(name, TrainingData.from_arrays(8, FEATURES, LABELS))
    assert isinstance(encoder, LinearEncoder)
    with torch.inference_mode():
        outputs = encoder.to_head()(torch.from_numpy(FEATURES)).numpy()
    np.testing.assert_allclose(outputs, encoder.embed(FEATURES), rtol=1e-3, atol=1e-4)


def test_itq_is_fitted_with_and_without_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_dataset("digits")
    config = TrainConfig(data="digits", bits=(8, 16), method="itq", backbone="convnet")
    hashers = train_hashers(digits, make_split(digits), config)
    assert [hasher.bits for hasher in hashers] == [8, 16]
    hashers[1].save(tmp_path / "model")
    loaded = Hasher.load(tmp_path / "model")
    dataset, split = load_eval_data(loaded)
    monkeypatch.setattr(feature_cache, "_extract", pytest.fail)  # the features are there
    assert evaluate_hasher(loaded, dataset, split).metrics[0].value > 0.25  # random features; chance is 0.1

    (everything,) = train_hashers(digits, None, TrainConfig(data="digits", bits=(8,), method="itq", backbone="convnet"))
    assert everything.class_names == ()
    assert "protocol" not in everything.metadata
    with pytest.raises(InputError, match="was fitted without labels, so relevance is unknown"):
        load_eval_data(everything)
    assert load_eval_data(everything, "digits")[1].protocol == "holdout"


def test_supervised_method_without_a_split_is_refused() -> None:
    digits = load_dataset("digits")
    with pytest.raises(InputError, match="ITQ-CCA learns from labels, and digits is used without"):
        train_hashers(digits, None, TrainConfig(bits=(8,), method="itq-cca", backbone="convnet"))
