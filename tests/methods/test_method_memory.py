"""Memory of steps over the whole training set."""

import tracemalloc

import numpy as np
import pytest
import torch

from proxyhash.methods import TrainingData, build_method
from proxyhash.models.heads import HeadConfig

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
