"""CroVCA: bits of one view predicted from another, and a high coding rate (Moummad, Zaher, Goeau and Joly 2025)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, one_hot

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.encoders import HeadEncoder
from proxyhash.methods.feature_training import (
    FeatureTrainingSettings,
    NoiseViews,
    check_range,
    load_sample,
    train_head,
)
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import BatchNormHead, Head, HeadConfig
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class CrovcaSettings(FeatureTrainingSettings):
    """Settings of CroVCA: the authors', but for the noise, which stands for their augmentation."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"noise": 0.5}, {"noise": 1.0}, {"noise": 2.0})

    rate: float = 0.1  # the weight of the coding rate
    distortion: float = 0.05  # epsilon of the coding rate
    noise: float = 1.0  # of views, in standard deviations of each feature
    steps: int = 1_000  # 5 epochs of 50,000 images
    batch_size: int = 256
    weight_decay: float = 0.01
    hidden_dim: int | None = None  # None: as many as features

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        super().__post_init__()
        check_range("rate", self.rate)
        check_range("distortion", self.distortion, above=True)
        check_range("noise", self.noise)
        if self.hidden_dim is not None:
            check_int("hidden_dim", self.hidden_dim, 0)


@dataclass(frozen=True)
class CrovcaLabelsSettings(MethodSettings):
    """Settings of CroVCA with labels: the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"rate": 0.03}, {"rate": 0.1}, {"rate": 0.3})

    rate: float = 0.1
    distortion: float = 0.05

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        check_range("rate", self.rate)
        check_range("distortion", self.distortion, above=True)


@register_method("crovca", title="CroVCA", family="unsupervised", year=2025, settings=CrovcaSettings, learns_from="nothing")
def fit(data: TrainingData, settings: CrovcaSettings) -> HeadEncoder:
    """Train CroVCA on features, Moummad et al. 2025.

    The loss is the mean of the binary cross-entropies of each view's outputs u (N, bits) with the bits of the other view,
    minus a weight times the mean coding rate of the views, see `coding_rate`. u is batch-normalized.

    Checked against ilyassmoummad/cross-view-code-alignment: `train.py`, `loss.py`, `optim.py`, `args.py` and the small
    HashCoder of `model.py` (weight 0.1, epsilon 0.05, AdamW with 0.001 and a decay of 0.01, 5 epochs with batches of 256, as
    many hidden units as features); of the paper, its abstract. Ours: views are features with noise instead of augmented
    images, because the backbone is not trained; batch normalization in the hidden layer too; the initial weights; codes are
    compared by the Hamming distance, while their evaluation compares sigmoids of queries with codes.
    """
    features = load_sample(data)
    views = NoiseViews(features, settings.noise, data.seed)

    def loss(head: Head, batch: Tensor) -> Tensor:
        first, second = head(views.draw(batch)), head(views.draw(batch))
        return crovca_loss(first, second, settings.rate, settings.distortion)

    hidden_dim = features.shape[1] if settings.hidden_dim is None else settings.hidden_dim
    return HeadEncoder("crovca", train_head("CroVCA", data, features, settings, BatchNormHead, loss, hidden_dim))


def crovca_loss(first: Tensor, second: Tensor, rate: float, distortion: float) -> Tensor:
    """Return the loss of outputs u of two views (N, bits)."""
    crossed = bit_cross_entropy(first, second) + bit_cross_entropy(second, first)
    return crossed / 2 - rate / 2 * (coding_rate(first, distortion) + coding_rate(second, distortion))


def bit_cross_entropy(u: Tensor, other: Tensor) -> Tensor:
    """Return the mean binary cross-entropy of sigmoid(u) with the bits of another view (N, bits)."""
    return binary_cross_entropy_with_logits(u, (other > 0).to(u.dtype))


def coding_rate(u: Tensor, distortion: float) -> Tensor:
    """Return (d + N) / (d N) / 2 log det(I + d / (N epsilon) X'X) for the rows of u (N, d), scaled to length 1, as X.

    It is the rate of maximal coding rate reduction (Yu et al. 2020) with the authors' balancing factor.
    """
    count, bits = u.shape
    unit = normalize(u)
    gram = torch.eye(bits, dtype=u.dtype, device=u.device) + bits / (count * distortion) * unit.T @ unit
    half_logdet: Tensor = torch.linalg.cholesky_ex(gram).L.diagonal().log().sum()
    return (bits + count) / (bits * count) * half_logdet


@register_method(
    "crovca-labels",
    title="CroVCA with labels",
    family="centers",
    year=2025,
    settings=CrovcaLabelsSettings,
    learns_from="classes or tags",
)
class CrovcaLabels(HashingMethod):
    """CroVCA with labels, Moummad et al. 2025.

    The loss is the binary cross-entropy of the outputs u (N, bits), which are batch-normalized, with the bits of c, minus a
    weight times the coding rate of u. c is the mean of u over the images of the same class in the batch; for an image with
    several tags, the mean over its tags of these means.

    Checked against the same code as `crovca`. Ours: one view of each image, since both views have the same c, instead of the
    mean over two; an image without tags has c = 0, as there, and so no bit set.
    """

    settings: CrovcaLabelsSettings

    def __init__(self, data: TrainingData, settings: CrovcaLabelsSettings) -> None:
        super().__init__(data, settings)
        self.has_tags, self.num_classes = data.has_tags, data.num_classes

    def build_head(self, config: HeadConfig) -> Head:
        """Return a linear map with batch normalization."""
        return BatchNormHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        present = (targets if self.has_tags else one_hot(targets, self.num_classes)).to(embeddings.dtype)
        means = present.T @ embeddings.detach() / present.sum(0).clamp(min=1)[:, None]
        centers = present @ means / present.sum(1, keepdim=True).clamp(min=1)
        rate = coding_rate(embeddings, self.settings.distortion)
        return bit_cross_entropy(embeddings, centers) - self.settings.rate * rate
