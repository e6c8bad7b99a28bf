"""DQN: cosines of pairs, and a product quantiser that the embedding is drawn to (Cao, Long, Wang, Zhu and Wen 2016)."""

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
    """How wide the embedding is, what quantisation weighs, and how many of a class a batch holds."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantisation": 0.01},
        {"quantisation": 0.1},
        {"quantisation": 0.1, "width": 256},
    )

    width: int = 128  # ours
    quantisation: float = 0.1  # ours, of a mean; 0.01 does as well on held-out digits
    per_class: int = 8  # ours


@register_method("dqn", title="DQN", family="pairwise", year=2016, settings=DqnSettings, metric="product quantizer")
class Dqn(HashingMethod):
    """The mean of (1 - cos(z_i, z_j))^2 over similar pairs, plus (-1 - cos)^2 over dissimilar ones, plus l ||z - C h||^2.

    Two means let few similar pairs count as much as many others (ours). z has length 1 (ours): the loss does not see its
    length, the distance that is searched by does. Codebooks C and codes h are alternated after each epoch, for all images.
    """

    settings: DqnSettings
    quantised: Tensor

    def __init__(self, data: TrainingData, settings: DqnSettings) -> None:
        super().__init__(data, settings)
        self.width = check_int("width", settings.width, 1)
        self.register_buffer("quantised", torch.zeros(len(data.known_labels()), self.width))

    def build_head(self, config: HeadConfig) -> UnitQuantizedHead:
        """Return a head with vectors of length 1."""
        return UnitQuantizedHead(replace(config, out_features=self.width))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch of vectors z (N, width); quantisation counts from the second epoch on."""
        similar, dissimilar = batch_pairs(targets)
        cosines = inner_products(embeddings, embeddings)
        loss = masked_mean((1 - cosines).square(), similar) + masked_mean((-1 - cosines).square(), dissimilar)
        nearest = self.quantised[indices]
        errors = (embeddings - nearest).square().sum(1)
        return loss + self.settings.quantisation * masked_mean(errors, nearest.any(1))

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantiser, and note what it makes of each image."""
        assert isinstance(head, QuantizedHead)
        z = embed().numpy()
        head.learn_codebooks(z)
        self.quantised.copy_(torch.from_numpy(head.quantized(z)))
