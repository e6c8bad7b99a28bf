"""HyP^2: hinges around learned proxies, and irrelevant pairs of tagged images (Xu, Chai, Xu, Yuan, Fan and Wang 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from proxyhash.losses import masked_mean, similar_pairs
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class Hyp2Settings(MethodSettings):
    """Settings of HyP^2: by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"proxy_lr": 1.0}, {"proxy_lr": 2.0}, {"proxy_lr": 5.0})

    beta: float = 0.5  # weight of the irrelevant pairs of tagged images; 0 for none
    threshold: float | None = None  # zeta, the cosine from which on hinges push apart; None: that of the best linear code
    proxy_lr: float = 1.0  # learning rate of the proxies relative to that of the head

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.beta < 0 or not self.proxy_lr > 0 or not -1 <= (self.threshold or 0) <= 1:
            raise InputError("beta may not be negative, proxy_lr must be above 0, and threshold is a cosine from -1 to 1.")

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return learning rates of the proxies, for tags also weights of the irrelevant pairs."""
        return ({"beta": 0.5}, {"beta": 1.0}, {"beta": 0.5, "proxy_lr": 2.0}) if tags else cls.SEARCH_SPACE


@register_method("hyp2", title="HyP²", family="proxy", year=2022, settings=Hyp2Settings)
class Hyp2(HashingMethod):
    """Hybrid proxy-pair loss, Xu, Chai, Xu, Yuan, Fan and Wang 2022.

    The loss is the mean of 1 - cos(u_i, w_k) over the images i of a batch and their own classes or tags k, plus the mean of
    max(0, cos(u_i, w_k) - zeta) over all others, with u (N, K) not bounded and proxies w (C, K) that are learned. Beta times
    the mean of max(0, cos(u_i, u_j) - zeta) joins for tags, over the pairs of images that have several tags each and share
    none. With classes there are no such pairs.

    zeta = 1 - 2 d / K, the cosine of two words at the minimum distance d of the best linear code of 2^ceil(log2 C) words.

    Checked against JerryXu0129/HyP2-Loss: `model.py`, `config.py`, `retrieval.py` and `codetable.xlsx`; of the paper only
    the abstract could be read. The defaults are beta = 0.5, one learning rate for network and proxies (twice that of the
    network for AlexNet, whose rate is 0.01), and initial proxies of variance 2 / C. Ours: d is that of the best linear code
    that we can construct. For up to 512 classes and 12, 16, 24, 32, 36, 48 and 64 bits it is that of the authors' table,
    except for 129 to 256 classes and 64 bits, where ours is 28 and theirs 29.
    """

    settings: Hyp2Settings

    def __init__(self, data: TrainingData, settings: Hyp2Settings) -> None:
        super().__init__(data, settings)
        self.has_tags = data.has_tags
        self.threshold = code_cosine(data.num_classes, data.bits) if settings.threshold is None else settings.threshold
        self.weights = nn.Parameter(torch.randn(data.num_classes, data.bits) * sqrt(2 / data.num_classes))

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh: the loss reads directions only."""
        return LinearHead(config)

    def lr_factors(self) -> Mapping[str, float]:
        """Return the learning rate of the proxies."""
        return {"weights": self.settings.proxy_lr}

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        cosines = self.scores(embeddings)
        own = (targets if self.has_tags else one_hot(targets, len(self.weights))) > 0
        loss = masked_mean(1 - cosines, own) + masked_mean(self._hinge(cosines), ~own)
        if self.has_tags and self.settings.beta:
            loss = loss + self.settings.beta * self._pair_loss(embeddings, targets)
        return loss

    def _pair_loss(self, embeddings: Tensor, tags: Tensor) -> Tensor:
        """Return the mean hinge over pairs of images with several tags each that share none."""
        several = tags.sum(1) > 1
        irrelevant = ~similar_pairs(tags) & several & several[:, None]
        directions = normalize(embeddings)
        return masked_mean(self._hinge(directions @ directions.T), irrelevant)

    def _hinge(self, cosines: Tensor) -> Tensor:
        return (cosines - self.threshold).clamp(min=0)

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines with the proxies (N, C)."""
        return normalize(embeddings) @ normalize(self.weights).T


def code_cosine(classes: int, bits: int) -> float:
    """Return 1 - 2 d / bits, where d is the minimum distance of the best linear code of at least C words.

    With more than 2^bits classes d is 1, the distance of all words.

    Examples
    --------
    >>> code_cosine(100, 32)  # [32, 7, 14]
    0.125
    """
    from proxyhash.proxies.constructions.best import best_columns  # imports numba
    from proxyhash.proxies.constructions.linear import linear_distance

    dimension = min(max(1, (classes - 1).bit_length()), bits)
    return 1 - 2 * linear_distance(best_columns(dimension, bits), dimension) / bits
