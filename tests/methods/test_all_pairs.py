"""Steps over the whole training set hold nothing of the size of all pairs."""

import tracemalloc

import numpy as np
import pytest
import torch

import proxyhash.methods  # noqa: F401  registers the objectives
from proxyhash.models.heads import HeadConfig
from proxyhash.training.objectives import Task, build_objective

IMAGES, CLASSES, BITS = 50_000, 100, 64


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adsh", "cnnh", "dqn", "drsch", "dsdh", "hbmp", "hbmp-regress", "softmax-pq", "subic"])
def test_fifty_thousand_images_fit(name: str) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, IMAGES)
    features = random.standard_normal((IMAGES, 8)).astype(np.float32)
    tracemalloc.start()
    objective = build_objective(name, Task(BITS, tuple(map(str, range(CLASSES))), labels, features=lambda: features), {})
    head = objective.head(HeadConfig(8, BITS))
    with torch.inference_mode():
        outputs = head.eval()(torch.from_numpy(features)).clone()
    objective.after_epoch(lambda: outputs, head)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 600e6  # all pairs would take 2.5e9, even at a byte each
