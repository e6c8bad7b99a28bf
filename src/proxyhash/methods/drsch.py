"""DRSCH: triplets with learned weights of bits and a Laplacian term (Zhang, Lin, Zhang, Zuo and Zhang 2015)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from proxyhash.losses import batch_pairs, hamming_distances, masked_mean, similarity_levels, triplet_hinge
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, WeightedHead

MARGIN = 5 / 64  # the authors' 5 of 64 bits
ACROSS = 0.001  # affinity of images of different classes, the authors'


@dataclass(frozen=True)
class DrschSettings(MethodSettings):
    """Settings of DRSCH: by default the authors' margin and affinity; None stands for what `affinity` needs.

    `affinity=features` is ours, with a margin of 1/8 and an adjacency of 0.1. `samples_per_class` is ours.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"margin": 0.125}, {"samples_per_class": 10})

    affinity: Literal["labels", "features"] = "labels"
    margin: float | None = None  # as a fraction of the code; None: 5/64, or 1/8 with affinity=features
    adjacency: float | None = None  # beta, of a mean over pairs; None: 0.001, or 0.1 with affinity=features
    samples_per_class: int = 4

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried, which depends on the affinity."""
        if (fixed or {}).get("affinity") == "features":
            return {"margin": 0.125}, {"margin": 0.25}, {"margin": 0.125, "samples_per_class": 8}
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with those filled in that depend on the affinity."""
        features = self.affinity == "features"
        return replace(
            self,
            margin=(0.125 if features else MARGIN) if self.margin is None else self.margin,
            adjacency=(0.1 if features else 0.001) if self.adjacency is None else self.adjacency,
        )


@register_method("drsch", title="DRSCH", family="triplet", year=2015, settings=DrschSettings, metric="weighted hamming")
class Drsch(HashingMethod):
    """Deep regularized similarity comparison hashing, Zhang et al. 2015.

    The loss is the mean of max(0, m + d_w(x, x+) - d_w(x, x-)), plus beta times the mean of a_ij ||h_i - h_j||^2 /
    4K, h = tanh(u) (N, K).

    d_w = sum_k w_k (1 - h_ik h_jk) / 2 with weights w > 0 whose mean is 1; the same weights are used in the search. The
    affinity a_ij is 1 for similar images and 0.001 for others. With affinity=features it is exp(-||q_i - q_j||^2 / 2 s) of
    the features before training, s the mean squared distance of a batch, and counts for similar images only.

    Checked against ruixuejianfei/BitScalableDeepHash (`prototxt/triplet/triplet_train.prototxt`, `loss_layer.cu`,
    `data_layer.cpp`): the margin of 5 of 64 bits, which grows by 0.1 every 10,000 steps there and is constant here;
    beta = 0.001, of a sum over pairs divided by the number of triplets there, of a mean over pairs here; the affinity.
    Their distance is that of squares of sigmoids times unbounded weights; at saturated codes it is this one. The diagonal of
    their Laplacian has the opposite sign; here it has that of the formula. They cut bits of small weight to shorten a
    code; here the length is given.
    """

    settings: DrschSettings

    def __init__(self, data: TrainingData, settings: DrschSettings) -> None:
        super().__init__(data, settings)
        assert settings.margin is not None
        assert settings.adjacency is not None
        self.margin, self.adjacency = settings.margin * data.bits, settings.adjacency
        has_features = settings.affinity == "features" and data.features is not None and self.adjacency
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
        h = torch.tanh(embeddings)
        scaled = h * self.weights().sqrt()
        # The mean weight is 1, so that (K - scaled . scaled) / 2 is the weighted distance.
        loss = triplet_hinge(hamming_distances(scaled, scaled), similarity_levels(targets), self.margin)
        similar, dissimilar = batch_pairs(targets)
        if self.settings.affinity == "labels":
            affinity, pairs = torch.where(similar, 1.0, ACROSS), similar | dissimilar
        elif self._features is not None:
            self._features = self._features.to(h.device)  # once, so that no step waits for a copy
            affinity, pairs = _affinity(self._features[indices].to(h)), similar
        else:
            return loss
        return loss + self.adjacency * masked_mean(affinity * torch.cdist(h, h).square() / (4 * h.shape[1]), pairs)

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Let the head search by the weights as far as they are learned."""
        assert isinstance(head, WeightedHead)
        head.weights.copy_(self.weights().detach())


def _affinity(features: Tensor) -> Tensor:
    squares = torch.cdist(features, features).square()
    return torch.exp(-squares / (2 * squares.mean()).clamp(min=1e-12))
