"""OrthoHash: cosine cross-entropy to fixed random codes (Hoe, Ng, Zhang, Chan, Song and Xiang 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class OrthoHashSettings(MethodSettings):
    """Settings of OrthoHash: by default the authors' scale and margin for 100 classes."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"scale": 8.0}, {"scale": 8.0, "margin": 0.5}, {"scale": 16.0})

    scale: float = 8.0
    margin: float = 0.2


@register_method(
    "orthohash", title="OrthoHash", family="centers", year=2021, settings=OrthoHashSettings, learns_from="classes"
)
class OrthoHash(HashingMethod):
    """OrthoHash, Hoe et al. 2021.

    The loss is the softmax cross-entropy of s (cos(nu, c_k) - m [k = y]), nu (N, K), with codes c_k of +1 and -1 drawn
    with probability 1/2. It does not apply to tags: with several right classes the margin belongs to none.
    """

    settings: OrthoHashSettings
    codes: Tensor

    def __init__(self, data: TrainingData, settings: OrthoHashSettings) -> None:
        super().__init__(data, settings)
        drawn = generator(data.seed, "orthohash").integers(0, 2, (data.num_classes, data.bits)) * 2 - 1
        self.register_buffer("codes", torch.from_numpy(drawn.astype(np.float32)))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margins = self.settings.margin * one_hot(targets, len(self.codes))
        return cross_entropy(self.settings.scale * (self._cosines(embeddings) - margins), targets)

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return self._cosines(embeddings)

    def _cosines(self, embeddings: Tensor) -> Tensor:
        return normalize(embeddings) @ normalize(self.codes).T
