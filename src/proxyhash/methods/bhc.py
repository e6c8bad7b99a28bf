"""BHC and SSDH: classifiers whose last hidden layer is the code (Lin et al. 2015; Yang, Lin and Chen 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class SsdhSettings(MethodSettings):
    """Settings of SSDH: the weights of the two further terms. The authors use 1 for all three."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"saturation": 0.1, "balance": 0.1},
        {"saturation": 1.0, "balance": 1.0},
        {"saturation": 1.0, "balance": 0.1},
    )

    saturation: float = 1.0  # pushes activations to 0 and 1
    balance: float = 1.0  # half of an image's bits should be on


class _LatentBits(HashingMethod):
    """Linear classifier on activations a = (nu + 1) / 2 (N, K) in [0, 1]; the code is a >= 1/2.

    a is a sigmoid of twice the head's output, so the shared head equals the authors'. For tags the cross-entropy is
    binary, one tag at a time, as in SSDH.
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
    """Binary hash codes, Lin et al. 2015: the cross-entropy of the classifier."""

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return self.classification_loss(embeddings, targets)


@register_method("ssdh", title="SSDH", family="proxy", year=2018, settings=SsdhSettings)
class Ssdh(_LatentBits):
    """Supervised semantics-preserving deep hashing, Yang, Lin and Chen 2018.

    The loss is the cross-entropy E1, minus the mean of (a - 1/2)^2, which pushes activations to 0 and 1, plus the mean
    over images of (mean(a) - 1/2)^2, which balances bits.
    """

    settings: SsdhSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return E1 - saturation * mean (a - 1/2)^2 + balance * mean over images of (mean(a) - 1/2)^2."""
        active = (embeddings + 1) / 2
        loss = self.classification_loss(embeddings, targets)
        loss = loss - self.settings.saturation * (active - 0.5).square().mean()
        return loss + self.settings.balance * (active.mean(1) - 0.5).square().mean()
