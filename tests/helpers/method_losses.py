"""Hashing methods with small training data."""

from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.methods import HashingMethod, TrainingData, build_method

NU = torch.tensor([[0.5, -1.0], [1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1])

NAMES, BITS, COUNT = tuple("abcde"), 8, 30
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.standard_normal((COUNT, 6)).astype(np.float32)
SMALL_LABELS = np.arange(COUNT) % len(NAMES)
TAGS = RANDOM.random((COUNT, len(NAMES))) < 0.4
TAGS[: len(NAMES)] |= np.eye(len(NAMES), dtype=bool)


def build(name: str, bits: int = 2, classes: int = 2, **settings: Any) -> HashingMethod:
    """Return a method, in double precision, for twelve images of some classes."""
    torch.manual_seed(0)
    return build_method(name, TrainingData.from_arrays(bits, None, np.arange(12) % classes), settings).double()


def loss_value(method: HashingMethod, nu: Tensor = NU, targets: Tensor = LABELS) -> float:
    """Return the loss of a batch of the first images."""
    return float(method(nu, targets, torch.arange(len(nu))).detach())


def softplus(x: float) -> float:
    """Return log(1 + e^x)."""
    return log(1 + exp(x))


def small_data(kind: str, features: bool = True) -> TrainingData:
    """Return training data of 30 images with classes or tags."""
    labels = ClassLabels(SMALL_LABELS, NAMES) if kind == "classes" else TagLabels(TAGS, NAMES)
    return TrainingData(BITS, FEATURES if features else None, labels)


def targets(kind: str) -> Tensor:
    """Return the classes or tags of these images."""
    return torch.from_numpy(SMALL_LABELS) if kind == "classes" else torch.from_numpy(TAGS.astype(np.float32))


def embeddings() -> Tensor:
    """Return random embeddings of these images."""
    return torch.tanh(torch.randn(COUNT, BITS, generator=torch.Generator().manual_seed(1))).requires_grad_()
