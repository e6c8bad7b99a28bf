"""BHC and SSDH: a classifier whose last hidden layer is the code (Lin et al. 2015; Yang, Lin and Chen 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class SsdhSettings(MethodSettings):
    """The weights of the two further terms; the authors use 1 for all three."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"ends": 0.1, "balance": 0.1},
        {"ends": 1.0, "balance": 1.0},
        {"ends": 1.0, "balance": 0.1},
    )

    ends: float = 1.0  # pushes activations to 0 and 1
    balance: float = 1.0  # half of an image's bits should be on


class _LatentBits(HashingMethod):
    """Cross-entropy of a linear classifier on activations a = (nu + 1) / 2 in [0, 1]^K; the code is a >= 1/2.

    a is a sigmoid of twice the head's output, so the shared head is theirs. For tags the cross-entropy is binary, one tag at
    a time, as SSDH has it.
    """

    def __init__(self, data: TrainingData, settings: MethodSettings) -> None:
        super().__init__(data, settings)
        self.classifier = nn.Linear(data.bits, data.num_classes)
        self.has_tags = data.has_tags

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the classifier's logits (N, C)."""
        logits: Tensor = self.classifier((embeddings + 1) / 2)
        return logits

    def classification_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of a batch."""
        logits = self.scores(embeddings)
        return binary_cross_entropy_with_logits(logits, targets) if self.has_tags else cross_entropy(logits, targets)


@register_method("bhc", title="BHC", family="proxy", year=2015)
class Bhc(_LatentBits):
    """The cross-entropy alone."""

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return self.classification_loss(embeddings, targets)


@register_method("ssdh", title="SSDH", family="proxy", year=2018, settings=SsdhSettings)
class Ssdh(_LatentBits):
    """The cross-entropy, activations pushed to their ends, and balanced bits."""

    settings: SsdhSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return E1 - ends * mean (a - 1/2)^2 + balance * mean over images of (mean(a) - 1/2)^2."""
        active = (embeddings + 1) / 2
        loss = self.classification_loss(embeddings, targets)
        loss = loss - self.settings.ends * (active - 0.5).square().mean()
        return loss + self.settings.balance * (active.mean(1) - 0.5).square().mean()
