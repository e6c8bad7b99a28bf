"""Bi-half Net: codes of which half have each bit, and their cosines those of the features (Li and van Gemert 2021)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, mse_loss

from proxyhash.methods.base import SearchSpace, TrainingData
from proxyhash.methods.encoders import HeadEncoder
from proxyhash.methods.feature_training import FeatureTrainingSettings, check_range, load_sample, train_head
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, LinearHead


@dataclass(frozen=True)
class BiHalfSettings(FeatureTrainingSettings):
    """Settings of Bi-half Net: gamma, the batch size, the decay and the linear map are the authors'; the rest is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"gamma": 1.0}, {"gamma": 6.0}, {"gamma": 6.0, "centered": True})

    gamma: float = 6.0
    centered: bool = False  # cosines of centered features (ours)
    steps: int = 5_000
    batch_size: int = 32
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        super().__post_init__()
        check_range("gamma", self.gamma)


@register_method("bihalf", title="Bi-half", family="unsupervised", year=2021, settings=BiHalfSettings, learns_from="nothing")
def fit(data: TrainingData, settings: BiHalfSettings) -> HeadEncoder:
    """Train Bi-half Net on features, Li and van Gemert 2021.

    A batch is cut in two, whose images form pairs. The loss is the mean over pairs of (cos(b_i, b_j) - cos(q_i, q_j))^2
    with codes b (N, bits) by the bi-half layer, see `bi_half_signs`, and features q. New images have the code sign(u).

    Checked against liyunqianggyn/Deep-Unsupervised-Image-Hashing: `ImageHashing/Cifar10_I.py`, `Cifar10_II.py`,
    `Flickr25k.py` and `Mscoco.py` (a linear map, gamma = 6, batches of 32, a decay of 0.0005, no augmentation); not the
    paper. Ours: AdamW for 5,000 steps instead of SGD for 100 to 300 epochs; centered features of mean square 1 as input,
    which the map is corrected for after training; sign(0) = +1; the backbone is never trained.
    """
    features = load_sample(data)
    mean = features.mean(0)
    scale = float((features - mean).square().mean().sqrt()) or 1.0

    def loss(head: Head, batch: Tensor) -> Tensor:
        return bi_half_loss(head((batch - mean) / scale), batch - mean if settings.centered else batch, settings.gamma)

    head = train_head("Bi-half", data, features, settings, LinearHead, loss)
    assert isinstance(head, LinearHead)
    _take_raw_features(head, mean, scale)
    return HeadEncoder("bihalf", head)


def bi_half_loss(u: Tensor, features: Tensor, gamma: float) -> Tensor:
    """Return the loss of a batch.

    Its gradient is the authors' g + gamma (u - b) / (N bits), g = dloss/db: the second term is that of
    gamma / 2 mean((u - b)^2), which is added here for constant b.

    Parameters
    ----------
    u
        Outputs (N, bits). The last image of an odd number is in no pair.
    features
        Features (N, width).
    gamma
        The weight of the distance from the codes.
    """
    signs = bi_half_signs(u.detach())
    codes, half = u + (signs - u).detach(), len(u) // 2
    pairs, targets = (cosine_similarity(x[:half], x[half : 2 * half]) for x in (codes, features))
    return mse_loss(pairs, targets) + gamma / 2 * mse_loss(u, signs)


def bi_half_signs(u: Tensor) -> Tensor:
    """Return the codes of a batch by the bi-half layer: +1 for the larger half of each bit, -1 for the others.

    That is the optimal transport of u to the distribution in which every bit has both values equally often.

    Examples
    --------
    >>> bi_half_signs(torch.tensor([[3.0, -1.0], [2.0, -4.0], [1.0, -2.0], [4.0, -3.0]])).tolist()
    [[1.0, 1.0], [-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0]]
    """
    largest = u.argsort(dim=0, descending=True, stable=True)[: len(u) // 2]
    return torch.full_like(u, -1).scatter_(0, largest, 1)


def _take_raw_features(head: LinearHead, mean: Tensor, scale: float) -> None:
    """Correct a linear map of (q - mean) / scale so that it takes q."""
    layer = head.layers[0]
    assert isinstance(layer, nn.Linear)
    weight = layer.weight.double() / scale
    layer.bias.copy_(layer.bias - weight @ mean.double())
    layer.weight.copy_(weight)
