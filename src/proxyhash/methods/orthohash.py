"""OrthoHash: cosine cross-entropy to fixed random codes (Hoe, Ng, Zhang, Chan, Song and Xiang 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize, one_hot

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import BatchNormHead, HashHead, Head, HeadConfig
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class OrthoHashSettings(MethodSettings):
    """Settings of OrthoHash: by default the authors'.

    Without `batch_norm` the head is nu = tanh(L'q + b) (ours).
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"scale": 8.0}, {"scale": 8.0, "margin": 0.5}, {"scale": 16.0})

    scale: float = 8.0
    margin: float = 0.2
    batch_norm: bool = True


@register_method("orthohash", title="OrthoHash", family="centers", year=2021, revision=2, settings=OrthoHashSettings)
class OrthoHash(HashingMethod):
    """OrthoHash, Hoe et al. 2021.

    The loss is the softmax cross-entropy of s (cos(u, c_k) - m y_k), u (N, K) the batch-normalized output of a linear map,
    with codes c_k of +1 and -1 drawn with probability 1/2, and y one-hot classes or tags. The target of an image with
    several tags is y / sum(y).

    Checked against kamwoh/orthohash: `functions/loss/orthohash.py`, `models/alexnet.py` and `main.py`, whose defaults are
    s = 8, m = 0.2, `label_smoothing` for tags and no quantization term. Ours: an image without tags has no loss.
    """

    settings: OrthoHashSettings
    codes: Tensor

    def __init__(self, data: TrainingData, settings: OrthoHashSettings) -> None:
        super().__init__(data, settings)
        self.has_tags = data.has_tags
        drawn = generator(data.seed, "orthohash").integers(0, 2, (data.num_classes, data.bits)) * 2 - 1
        self.register_buffer("codes", torch.from_numpy(drawn.astype(np.float32)))

    def build_head(self, config: HeadConfig) -> Head:
        """Return a linear map with batch normalization, or the head with tanh."""
        return BatchNormHead(config) if self.settings.batch_norm else HashHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        cosines = self._cosines(embeddings)
        present = (targets if self.has_tags else one_hot(targets, len(self.codes))).to(cosines.dtype)
        return margin_cross_entropy(cosines, present, self.settings.scale, self.settings.margin)

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return self._cosines(embeddings)

    def _cosines(self, embeddings: Tensor) -> Tensor:
        return normalize(embeddings) @ normalize(self.codes).T


def margin_cross_entropy(cosines: Tensor, present: Tensor, scale: float, margin: float) -> Tensor:
    """Return the mean cross-entropy of s (cos - m y) with y / sum(y), for classes or tags y (N, C) of 0 and 1."""
    wanted = present / present.sum(1, keepdim=True).clamp(min=1)
    return -(wanted * log_softmax(scale * (cosines - margin * present), dim=1)).sum(1).mean()
