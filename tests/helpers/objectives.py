"""Objectives with little around them: what every test of a loss needs."""

from math import exp, log
from typing import Any

import numpy as np
import torch
from torch import Tensor

import proxyhash.methods  # noqa: F401  registers the objectives
from proxyhash.training.objectives import Objective, Task, build_objective

NU = torch.tensor([[0.5, -1.0], [1.0, 0.0], [-0.5, 0.5]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1])


def build(name: str, bits: int = 2, classes: int = 2, **settings: Any) -> Objective:
    """Return an objective, in double precision, for twelve images of some classes."""
    torch.manual_seed(0)
    names = tuple(map(str, range(classes)))
    return build_objective(name, Task(bits, names, np.arange(12) % classes), dict(settings)).double()


def loss_value(objective: Objective, nu: Tensor = NU, targets: Tensor = LABELS) -> float:
    """Return the loss of a batch of the first images."""
    return float(objective(nu, targets, torch.arange(len(nu))).detach())


def softplus(x: float) -> float:
    return log(1 + exp(x))
