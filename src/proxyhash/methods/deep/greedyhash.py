"""GreedyHash: a classifier on the signs themselves, gradients passed straight through (Su, Zhang, Han and Tian 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class GreedyHashSettings:
    """The weight of the penalty; public implementations have 0.1 to 1."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"penalty": 0.01}, {"penalty": 0.1}, {"penalty": 1.0})

    penalty: float = 0.1


class GreedyClassifier(Objective):
    """Cross-entropy of a linear classifier of b = sign(u), plus alpha mean ||u| - 1|^3; db/du is taken to be 1.

    For tags the cross-entropy is binary, one tag at a time (ours).
    """

    def __init__(self, task: Task, settings: GreedyHashSettings) -> None:
        super().__init__()
        self.classifier = nn.Linear(task.bits, len(task.names))
        self.penalty, self.tagged = settings.penalty, task.tags is not None

    def head(self, shape: HeadConfig) -> LinearHead:
        """Return a head without tanh: the penalty alone keeps u near its signs."""
        return LinearHead(shape)

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        logits = self.scores(nu)
        loss = binary_cross_entropy_with_logits(logits, targets) if self.tagged else cross_entropy(logits, targets)
        return loss + self.penalty * (nu.abs() - 1).abs().pow(3).mean()

    def scores(self, nu: Tensor) -> Tensor:
        """Return the classifier's logits (N, C) of the signs."""
        logits: Tensor = self.classifier(straight_through_signs(nu))
        return logits


def straight_through_signs(u: Tensor) -> Tensor:
    """Return sign(u), sign(0) = +1, with the gradient of u."""
    return u + (torch.where(u >= 0, 1.0, -1.0) - u).detach()


@deep_method("greedyhash", "GreedyHash", "proxy", 2018, GreedyHashSettings)
def greedyhash(task: Task, settings: GreedyHashSettings) -> GreedyClassifier:
    """Return the objective."""
    return GreedyClassifier(task, settings)
