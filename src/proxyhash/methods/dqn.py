"""DQN: cosines of pairs and a product quantizer (Cao, Long, Wang, Zhu and Wen 2016)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from proxyhash.losses import batch_pairs, inner_products, masked_mean, similar_pairs
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, QuantizedHead, UnitQuantizedHead
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class DqnSettings(MethodSettings):
    """Settings of DQN: by default the authors', but for `quantization`; None stands for what `pairs` needs.

    `pairs=balanced` is ours: the mean over similar pairs plus that over dissimilar ones, 8 images of a class in a batch, and
    an embedding of 128.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"quantization": 0.1}, {"samples_per_class": 8})

    pairs: Literal["mean", "balanced"] = "mean"
    embed_dim: int | None = None  # of the embedding; None: 300, or 128 with pairs=balanced
    quantization: float | None = None  # of vectors of length 1; None: 0.01, or 0.1 with pairs=balanced
    samples_per_class: int | None = None  # in a batch; 0: random batches; None: 0, or 8 with pairs=balanced

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried, which depends on the pairs."""
        if (fixed or {}).get("pairs") == "balanced":
            return {"quantization": 0.01}, {"quantization": 0.1}, {"quantization": 0.1, "embed_dim": 256}
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with those filled in that depend on the pairs."""
        balanced = self.pairs == "balanced"
        return replace(
            self,
            embed_dim=(128 if balanced else 300) if self.embed_dim is None else self.embed_dim,
            quantization=(0.1 if balanced else 0.01) if self.quantization is None else self.quantization,
            samples_per_class=(8 if balanced else 0) if self.samples_per_class is None else self.samples_per_class,
        )


@register_method("dqn", title="DQN", family="pairwise", year=2016, settings=DqnSettings, metric="product quantizer")
class Dqn(HashingMethod):
    """Deep quantization network, Cao et al. 2016.

    The loss is the mean over all pairs of a batch of (s_ij - cos(z_i, z_j))^2, s = 1 for similar pairs and -1 for others,
    plus l ||z - C h||^2, with z (N, embed_dim), codebooks C and codes h. An image's pair with itself counts, with 0.

    z has length 1 (ours): the first term does not depend on its length, but the distance of the search does. C and h are
    alternated after each epoch, for all images; quantization counts from the second epoch on.

    Checked against thulab/DeepHash (`DeepHash/model/dqn/dqn.py`, `examples/dqn`), of the paper's authors: the mean over
    pairs, random batches, 300 outputs. There l = 0.0001 for z after a tanh, whose squared length is at most 300; our 0.01
    is that for a squared length of 100. They fit C and h every other epoch, anew, and compare by inner products.
    """

    settings: DqnSettings
    quantized: Tensor

    def __init__(self, data: TrainingData, settings: DqnSettings) -> None:
        super().__init__(data, settings)
        assert settings.quantization is not None
        self.embed_dim, self.quantization = check_int("embed_dim", settings.embed_dim, 1), settings.quantization
        self.register_buffer("quantized", torch.zeros(len(data.require_labels()), self.embed_dim))

    def build_head(self, config: HeadConfig) -> UnitQuantizedHead:
        """Return a head with vectors of length 1."""
        return UnitQuantizedHead(replace(config, out_features=self.embed_dim))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch of vectors z (N, width); quantization counts from the second epoch on."""
        cosines = inner_products(embeddings, embeddings)
        loss = _balanced_loss(cosines, targets) if self.settings.pairs == "balanced" else _mean_loss(cosines, targets)
        nearest = self.quantized[indices]
        errors = (embeddings - nearest).square().sum(1)
        return loss + self.quantization * masked_mean(errors, nearest.any(1))

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantizer, and store the quantized vector of each image."""
        assert isinstance(head, QuantizedHead)
        z = embed().numpy()
        head.learn_codebooks(z)
        self.quantized.copy_(torch.from_numpy(head.quantized(z)))


def _mean_loss(cosines: Tensor, targets: Tensor) -> Tensor:
    signs = torch.where(similar_pairs(targets).fill_diagonal_(True), 1.0, -1.0)
    return (signs - cosines).square().mean()


def _balanced_loss(cosines: Tensor, targets: Tensor) -> Tensor:
    similar, dissimilar = batch_pairs(targets)
    return masked_mean((1 - cosines).square(), similar) + masked_mean((-1 - cosines).square(), dissimilar)
