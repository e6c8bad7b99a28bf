"""DPSH: the likelihood of pairs (Li, Wang and Kang 2016)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import batch_pairs, inner_products, masked_mean, pair_nll, quantization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class DpshSettings(MethodSettings):
    """The weight of the quantisation term, and how many of a class a batch holds (ours: a plain batch of 100 classes has few
    similar pairs)."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantisation": 0.01},
        {"quantisation": 0.1},
        {"quantisation": 0.01, "per_class": 16},
    )

    quantisation: float = 0.1
    per_class: int = 8


@register_method("dpsh", title="DPSH", family="pairwise", year=2016, settings=DpshSettings)
class Dpsh(HashingMethod):
    """-mean over pairs of s theta - log(1 + e^theta), theta = u_i.u_j / 2, plus eta times (u - b)^2.

    Pairs of a batch; an image is no pair with itself. The authors' u is not bounded, ours is a tanh.
    """

    settings: DpshSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        theta = inner_products(embeddings, embeddings) / 2
        similar, dissimilar = batch_pairs(targets)
        return masked_mean(pair_nll(theta, similar), similar | dissimilar) + self.settings.quantisation * quantization_loss(
            embeddings
        )
