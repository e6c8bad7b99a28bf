"""CIBHash: contrastive hashing with an information bottleneck (Qiu, Su, Ou, Yu and Chen 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from proxyhash.methods.base import SearchSpace, TrainingData
from proxyhash.methods.encoders import HeadEncoder
from proxyhash.methods.feature_training import (
    FeatureTrainingSettings,
    NoiseViews,
    check_range,
    load_sample,
    train_head,
)
from proxyhash.methods.greedyhash import straight_through_signs
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, LinearHead
from proxyhash.utils.validation import check_int

EPSILON = 1e-8  # in logarithms, the authors'


@dataclass(frozen=True)
class CibHashSettings(FeatureTrainingSettings):
    """Settings of CIBHash: the authors', but for the noise, which stands for their augmentation, and the steps."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"noise": 0.5}, {"noise": 1.0}, {"noise": 2.0})

    temperature: float = 0.3
    weight: float = 0.001  # of the bottleneck
    noise: float = 1.0  # of views, in standard deviations of each feature
    steps: int = 2_000
    batch_size: int = 64
    hidden_dim: int = 1_024

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        super().__post_init__()
        check_range("temperature", self.temperature, above=True)
        check_range("weight", self.weight)
        check_range("noise", self.noise)
        check_int("hidden_dim", self.hidden_dim, 0)


@register_method(
    "cibhash", title="CIBHash", family="unsupervised", year=2021, settings=CibHashSettings, learns_from="nothing"
)
def fit(data: TrainingData, settings: CibHashSettings) -> HeadEncoder:
    """Train CIBHash on features, Qiu et al. 2021.

    Two views of each image have codes sign(p - 1/2), p = sigmoid(u). The loss is the cross-entropy of finding the other view
    among the 2N - 1 other codes of the batch, by cosines over a temperature, plus a weight times the symmetric
    Kullback-Leibler divergence of the bits' distributions, see `cibhash_loss`.

    Checked against zexuanqiu/CIBHash: `model/CIBHash.py` and `model/base_model.py` (temperature 0.3, weight 0.001, batches
    of 64, a learning rate of 0.001, 1,024 hidden units); not the paper. Ours: views are features with noise instead of
    augmented images, because the backbone is not trained; batch normalization in the hidden layer; 2,000 steps with a
    falling learning rate instead of 60 epochs of 5,000 images, of which they keep the best on labeled images; sign(0) = +1.
    """
    features = load_sample(data)
    views = NoiseViews(features, settings.noise, data.seed)

    def loss(head: Head, batch: Tensor) -> Tensor:
        return cibhash_loss(head(views.draw(batch)), head(views.draw(batch)), settings.temperature, settings.weight)

    head = train_head("CIBHash", data, features, settings, LinearHead, loss, settings.hidden_dim)
    return HeadEncoder("cibhash", head)


def cibhash_loss(first: Tensor, second: Tensor, temperature: float, weight: float) -> Tensor:
    """Return the loss of a batch, whose derivative takes codes as p - 1/2.

    Parameters
    ----------
    first, second
        Outputs u of two views (N, bits).
    temperature
        What cosines are divided by.
    weight
        The weight of the divergence.
    """
    p, q = first.sigmoid(), second.sigmoid()
    codes = straight_through_signs(torch.cat([p, q]) - 0.5)
    divergence = (bernoulli_divergence(p, q.detach()) + bernoulli_divergence(q, p.detach())) / 2
    return contrastive_loss(codes, temperature) + weight * divergence


def contrastive_loss(codes: Tensor, temperature: float) -> Tensor:
    """Return the cross-entropy of rows (2N, bits), whose i-th and (i + N)-th belong together, by cosines."""
    unit, count = normalize(codes), len(codes)
    logits = (unit @ unit.T / temperature).masked_fill(torch.eye(count, dtype=torch.bool), -torch.inf)
    return cross_entropy(logits, torch.arange(count).roll(count // 2))


def bernoulli_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Return KL(p || q) of bits with the probabilities p and q (N, bits), summed over bits; the mean over images."""
    ones = p * ((p + EPSILON).log() - (q + EPSILON).log())
    zeros = (1 - p) * ((1 - p + EPSILON).log() - (1 - q + EPSILON).log())
    return (ones + zeros).sum(1).mean()
