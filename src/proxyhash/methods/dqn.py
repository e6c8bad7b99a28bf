"""DQN: cosines of pairs and a product quantizer (Cao, Long, Wang, Zhu and Wen 2016)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from proxyhash.losses import batch_pairs, inner_products, masked_mean
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, QuantizedHead, UnitQuantizedHead
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class DqnSettings(MethodSettings):
    """Settings of DQN: the size of the embedding, the weight of the quantization term, images of a class in a batch."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantization": 0.01},
        {"quantization": 0.1},
        {"quantization": 0.1, "embed_dim": 256},
    )

    embed_dim: int = 128  # ours
    quantization: float = 0.1  # ours, of a mean; 0.01 does as well on held-out digits
    samples_per_class: int = 8  # ours


@register_method("dqn", title="DQN", family="pairwise", year=2016, settings=DqnSettings, metric="product quantizer")
class Dqn(HashingMethod):
    """Deep quantization network, Cao et al. 2016.

    The loss is the mean of (1 - cos(z_i, z_j))^2 over similar pairs, plus that of (-1 - cos)^2 over dissimilar ones,
    plus l ||z - C h||^2, with z (N, embed_dim), codebooks C and codes h.

    The two means give few similar pairs the weight of many dissimilar ones (ours). z has length 1 (ours): the loss does
    not depend on its length, but the distance of the search does. C and h are alternated after each epoch, for all
    images.
    """

    settings: DqnSettings
    quantized: Tensor

    def __init__(self, data: TrainingData, settings: DqnSettings) -> None:
        super().__init__(data, settings)
        self.embed_dim = check_int("embed_dim", settings.embed_dim, 1)
        self.register_buffer("quantized", torch.zeros(len(data.require_labels()), self.embed_dim))

    def build_head(self, config: HeadConfig) -> UnitQuantizedHead:
        """Return a head with vectors of length 1."""
        return UnitQuantizedHead(replace(config, out_features=self.embed_dim))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch of vectors z (N, width); quantization counts from the second epoch on."""
        similar, dissimilar = batch_pairs(targets)
        cosines = inner_products(embeddings, embeddings)
        loss = masked_mean((1 - cosines).square(), similar) + masked_mean((-1 - cosines).square(), dissimilar)
        nearest = self.quantized[indices]
        errors = (embeddings - nearest).square().sum(1)
        return loss + self.settings.quantization * masked_mean(errors, nearest.any(1))

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantizer, and store the quantized vector of each image."""
        assert isinstance(head, QuantizedHead)
        z = embed().numpy()
        head.learn_codebooks(z)
        self.quantized.copy_(torch.from_numpy(head.quantized(z)))
