"""GreedyHash: a classifier on signs with straight-through gradients (Su, Zhang, Han and Tian 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HeadConfig, LinearHead


@dataclass(frozen=True)
class GreedyHashSettings(MethodSettings):
    """Settings of GreedyHash: by default the authors' for CIFAR-10. For 100 classes of ImageNet their penalty is 1."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"penalty": 0.01}, {"penalty": 0.1}, {"penalty": 1.0})

    penalty: float = 0.1
    bias: bool = False  # of the classifier


@register_method("greedyhash", title="GreedyHash", family="proxy", year=2018, settings=GreedyHashSettings)
class GreedyHash(HashingMethod):
    """GreedyHash, Su et al. 2018.

    The loss is the cross-entropy of a linear classifier of b = sign(u), plus alpha times the mean of ||u| - 1|^3, u (N,
    K); db/du is taken to be 1. For tags the cross-entropy is binary, one tag at a time (ours).

    Checked against ssppp/GreedyHash: `cifar1.py` and `cifar2.py` (alpha = 0.1) and `imagenet.py` (alpha = 1); the
    classifier has no bias. Ours: sign(0) = +1, not 0.
    """

    settings: GreedyHashSettings

    def __init__(self, data: TrainingData, settings: GreedyHashSettings) -> None:
        super().__init__(data, settings)
        self.classifier = nn.Linear(data.bits, data.num_classes, bias=settings.bias)
        self.has_tags = data.has_tags

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh: the penalty alone keeps u near its signs."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        logits = self.scores(embeddings)
        loss = binary_cross_entropy_with_logits(logits, targets) if self.has_tags else cross_entropy(logits, targets)
        return loss + self.settings.penalty * (embeddings.abs() - 1).abs().pow(3).mean()

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the classifier's logits (N, C) of the signs."""
        logits: Tensor = self.classifier(straight_through_signs(embeddings))
        return logits


def straight_through_signs(u: Tensor) -> Tensor:
    """Return sign(u), sign(0) = +1, with the gradient of u."""
    return u + (torch.where(u >= 0, 1.0, -1.0) - u).detach()
