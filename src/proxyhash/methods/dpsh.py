"""DPSH: likelihood of pairs (Li, Wang and Kang 2016)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import PairwiseLoss, quantization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class DpshSettings(MethodSettings):
    """Settings of DPSH.

    `samples_per_class` is ours: a random batch of 100 classes has few similar pairs.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantization": 0.01},
        {"quantization": 0.1},
        {"quantization": 0.01, "samples_per_class": 16},
    )

    quantization: float = 0.1
    samples_per_class: int = 8


@register_method("dpsh", title="DPSH", family="pairwise", year=2016, settings=DpshSettings)
class Dpsh(HashingMethod):
    """Deep pairwise-supervised hashing, Li, Wang and Kang 2016.

    The loss is -mean over the pairs of a batch of s theta - log(1 + e^theta), theta = u_i.u_j / 2, plus eta times the
    mean of (u - b)^2, with u (N, K) and b its signs. An image is not paired with itself. The authors' u is not bounded;
    ours is a tanh.
    """

    settings: DpshSettings

    def __init__(self, data: TrainingData, settings: DpshSettings) -> None:
        super().__init__(data, settings)
        self.pairs = PairwiseLoss()

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        pairs: Tensor = self.pairs(embeddings, targets)
        return pairs + self.settings.quantization * quantization_loss(embeddings)
