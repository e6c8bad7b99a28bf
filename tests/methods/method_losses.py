"""Objectives with little around them: what every test of a loss needs."""

from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxyhash.methods import HashingMethod, TrainingData, build_method

NU = torch.tensor([[0.5, -1.0], [1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1])


def built(name: str, bits: int = 2, classes: int = 2, **settings: Any) -> HashingMethod:
    """Return an objective, in double precision, for twelve images of some classes."""
    torch.manual_seed(0)
    return build_method(name, TrainingData.from_arrays(bits, None, np.arange(12) % classes), dict(settings)).double()


def value(objective: HashingMethod, nu: Tensor = NU, targets: Tensor = LABELS) -> float:
    """Return the loss of a batch of the first images."""
    return float(objective(nu, targets, torch.arange(len(nu))).detach())


def softplus(x: float) -> float:
    return log(1 + exp(x))
