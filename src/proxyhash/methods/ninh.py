"""NINH: triplet ranking loss with a divide-and-encode head (Lai, Pan, Liu and Yan 2015)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import similarity_levels, triplet_hinge
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import DividedHead, HeadConfig


@dataclass(frozen=True)
class NinhSettings(MethodSettings):
    """Settings of NINH: by default the authors' margin of one bit; `samples_per_class` is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"margin": 1.0}, {"margin": 2.0}, {"margin": 4.0})

    margin: float = 1.0
    samples_per_class: int = 4


@register_method("ninh", title="NINH", family="triplet", year=2015, settings=NinhSettings)
class Ninh(HashingMethod):
    """Network-in-network hashing, Lai et al. 2015.

    The loss is the mean of max(0, m + ||F - F+||^2 - ||F - F-||^2), F = (nu + 1) / 2 (N, K), over all triplets of a
    batch.

    Checked against HYPJUDY/caffe-dnnh (`triplet_ranking_hinge_loss_layer.cpp`), which is not by the authors, but has its
    parameters from files of the first one. Code of the authors was not found.
    """

    settings: NinhSettings

    def build_head(self, config: HeadConfig) -> DividedHead:
        """Return the divide-and-encode head."""
        return DividedHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        squares = embeddings.square().sum(1)
        distances = (squares[:, None] + squares - 2 * embeddings @ embeddings.T) / 4
        return triplet_hinge(distances, similarity_levels(targets), self.settings.margin)
