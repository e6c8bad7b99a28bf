"""Hashing methods for tests of single losses."""

from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxyhash.methods import HashingMethod, TrainingData, build_method

NU = torch.tensor([[0.5, -1.0], [1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1])


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
