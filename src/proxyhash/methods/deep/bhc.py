"""BHC and SSDH: a classifier whose last hidden layer is the code (Lin et al. 2015; Yang, Lin and Chen 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.registry import deep_method
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class BhcSettings:
    """Nothing to choose."""


@dataclass(frozen=True)
class SsdhSettings:
    """The weights of the two further terms; the authors use 1 for all three."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"ends": 0.1, "balance": 0.1},
        {"ends": 1.0, "balance": 1.0},
        {"ends": 1.0, "balance": 0.1},
    )

    ends: float = 1.0  # pushes activations to 0 and 1
    balance: float = 1.0  # half of an image's bits should be on


class LatentBits(Objective):
    """Cross-entropy of a linear classifier on activations a = (nu + 1) / 2 in [0, 1]^K; the code is a >= 1/2.

    a is a sigmoid of twice the head's output, so the shared head is theirs. For tags the cross-entropy is binary, one tag at
    a time, as SSDH has it.
    """

    def __init__(self, task: Task, ends: float, balance: float) -> None:
        super().__init__()
        self.classifier = nn.Linear(task.bits, len(task.names))
        self.ends, self.balance = ends, balance
        self.tagged = task.tags is not None

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return E1 - ends * mean (a - 1/2)^2 + balance * mean over images of (mean(a) - 1/2)^2."""
        active = (nu + 1) / 2
        logits = self.classifier(active)
        loss = binary_cross_entropy_with_logits(logits, targets) if self.tagged else cross_entropy(logits, targets)
        loss = loss - self.ends * (active - 0.5).square().mean()
        return loss + self.balance * (active.mean(1) - 0.5).square().mean()

    def scores(self, nu: Tensor) -> Tensor:
        """Return the classifier's logits (N, C)."""
        logits: Tensor = self.classifier((nu + 1) / 2)
        return logits


@deep_method("bhc", "BHC", "proxy", 2015, BhcSettings)
def bhc(task: Task, settings: BhcSettings) -> LatentBits:  # noqa: ARG001
    """Cross-entropy alone."""
    return LatentBits(task, 0.0, 0.0)


@deep_method("ssdh", "SSDH", "proxy", 2018, SsdhSettings)
def ssdh(task: Task, settings: SsdhSettings) -> LatentBits:
    """Cross-entropy, activations pushed to their ends, and balanced bits."""
    return LatentBits(task, settings.ends, settings.balance)
