"""DRSCH: triplets with learned weights of bits and a Laplacian term (Zhang, Lin, Zhang, Zuo and Zhang 2015)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from proxyhash.losses import batch_pairs, hamming_distances, masked_mean, similarity_levels, triplet_hinge
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, WeightedHead


@dataclass(frozen=True)
class DrschSettings(MethodSettings):
    """Settings of DRSCH, all ours.

    They are the margin as a fraction of the code, the weight of the Laplacian term, and images of a class in a batch.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"margin": 0.125},
        {"margin": 0.25},
        {"margin": 0.125, "samples_per_class": 8},
    )

    margin: float = 0.125  # better on held-out digits than a quarter
    adjacency: float = 0.1
    samples_per_class: int = 4


@register_method("drsch", title="DRSCH", family="triplet", year=2015, settings=DrschSettings, metric="weighted hamming")
class Drsch(HashingMethod):
    """Deep regularized similarity comparison hashing, Zhang et al. 2015.

    The loss is the mean of max(0, m + d_w(x, x+) - d_w(x, x-)), plus lambda times the mean of a_ij ||h_i - h_j||^2 /
    4K, h = tanh(u) (N, K).

    d_w = sum_k w_k (1 - h_ik h_jk) / 2 with weights w > 0 whose mean is 1; the same weights are used in the search. The
    affinity a_ij = exp(-||q_i - q_j||^2 / 2 s) is that of the features before training, s the mean squared distance of
    a batch; it counts for similar images only (ours: otherwise it would contradict the labels). The authors cut bits of
    small weight to shorten a code; here the length is given.
    """

    settings: DrschSettings

    def __init__(self, data: TrainingData, settings: DrschSettings) -> None:
        super().__init__(data, settings)
        has_features = data.features is not None and settings.adjacency
        # Not a buffer: a moving average of the weights would copy it in every step.
        self._features = torch.from_numpy(np.require(data.load_features(), requirements="W")) if has_features else None
        self.logits = nn.Parameter(torch.zeros(data.bits))

    def build_head(self, config: HeadConfig) -> WeightedHead:
        """Return a head that searches by weights."""
        return WeightedHead(config)

    def weights(self) -> Tensor:
        """Return w (bits,)."""
        return len(self.logits) * self.logits.softmax(0)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        h, margin = torch.tanh(embeddings), self.settings.margin * embeddings.shape[1]
        scaled = h * self.weights().sqrt()
        # The mean weight is 1, so that (K - scaled . scaled) / 2 is the weighted distance.
        loss = triplet_hinge(hamming_distances(scaled, scaled), similarity_levels(targets), margin)
        if self._features is None:
            return loss
        similar, _ = batch_pairs(targets)
        self._features = self._features.to(h.device)  # once, so that no step waits for a copy
        affinity = _affinity(self._features[indices].to(h))
        return loss + self.settings.adjacency * masked_mean(
            affinity * torch.cdist(h, h).square() / (4 * h.shape[1]), similar
        )

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Let the head search by the weights as far as they are learned."""
        assert isinstance(head, WeightedHead)
        head.weights.copy_(self.weights().detach())


def _affinity(features: Tensor) -> Tensor:
    squares = torch.cdist(features, features).square()
    return torch.exp(-squares / (2 * squares.mean()).clamp(min=1e-12))
