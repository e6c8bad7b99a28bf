"""Memory of steps over the whole training set."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from proxyhash.methods import TrainingData, build_method, feature_training
from proxyhash.models.heads import HeadConfig
from proxyhash.training.features import fit_method

IMAGES, CLASSES, BITS = 50_000, 100, 64


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["adsh", "cnnh", "crh", "dqn", "drsch", "dsdh", "hbmp", "hbmp-regress", "shc", "softmax-pq", "subic"]
)
def test_steps_between_epochs_take_memory_linear_in_the_images(name: str) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, IMAGES)
    features = random.standard_normal((IMAGES, 8)).astype(np.float32)
    tracemalloc.start()
    objective = build_method(name, TrainingData.from_arrays(BITS, features, labels), {})
    head = objective.build_head(HeadConfig(8, BITS))
    with torch.inference_mode():
        outputs = head.eval()(torch.from_numpy(features)).clone()
    objective.on_epoch_end(lambda: outputs, head)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600e6  # all pairs would take 2.5e9, even at a byte each


@pytest.mark.parametrize("name", ["bihalf", "cibhash", "crovca"])
def test_training_without_labels_holds_a_sample_of_the_features(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    features: Any = np.ones((1_000_000, 16), np.float16)
    features[::2] = 0
    fit_method(name, TrainingData(8, features[:64]), steps=1)  # imports are not counted
    monkeypatch.setattr(feature_training, "MAX_VALUES", 1 << 17)
    tracemalloc.start()
    fit_method(name, TrainingData(8, features), steps=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # all features would take 64e6
