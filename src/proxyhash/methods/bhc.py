"""BHC and SSDH: classifiers whose last hidden layer is the code (Lin et al. 2015; Yang, Lin and Chen 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class BhcSettings(MethodSettings):
    """Settings of BHC: those of the classifier."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"classifier_lr": 1.0})

    classifier_lr: float = 10.0  # learning rate relative to that of the head
    classifier_std: float | None = 0.2  # of the normal distribution of initial weights; None: torch's initial weights
    tag_loss: Literal["sum", "mean"] = "sum"  # over the tags of an image

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.classifier_lr > 0 or not (self.classifier_std is None or self.classifier_std > 0):
            raise InputError("classifier_lr and classifier_std must be above 0.")


@dataclass(frozen=True)
class SsdhSettings(BhcSettings):
    """Settings of SSDH: those of the classifier, and the weights of the two further terms.

    By default these are the weights of 1 that the authors give, times the 1/2 of their layers.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"saturation": 0.5, "balance": 0.5},
        {"saturation": 0.015625, "balance": 0.015625},  # 1 / (2 N) of the authors' batches
        {"saturation": 0.015625, "balance": 0.015625, "classifier_lr": 1.0},
    )

    saturation: float = 0.5  # pushes activations to 0 and 1
    balance: float = 0.5  # half of an image's bits should be on


class _LatentBits(HashingMethod):
    """Linear classifier on activations a = (nu + 1) / 2 (N, K) in [0, 1]; the code is a >= 1/2.

    a is a sigmoid of twice the head's output, so the shared head equals the authors'. For tags the cross-entropy is
    binary, summed over the tags of an image.

    The classifier learns 10 times as fast as the head, and starts at weights of standard deviation 0.2.
    """

    settings: BhcSettings

    def __init__(self, data: TrainingData, settings: BhcSettings) -> None:
        super().__init__(data, settings)
        self.classifier = nn.Linear(data.bits, data.num_classes)
        if settings.classifier_std is not None:
            nn.init.normal_(self.classifier.weight, std=settings.classifier_std)
            nn.init.zeros_(self.classifier.bias)
        self.has_tags = data.has_tags

    def lr_factors(self) -> Mapping[str, float]:
        """Return the learning rate of the classifier."""
        return {f"classifier.{name}": self.settings.classifier_lr for name, _ in self.classifier.named_parameters()}

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the classifier's logits (N, C)."""
        logits: Tensor = self.classifier((embeddings + 1) / 2)
        return logits

    def classification_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy of a batch."""
        logits = self.scores(embeddings)
        if not self.has_tags:
            return cross_entropy(logits, targets)
        losses = binary_cross_entropy_with_logits(logits, targets, reduction="none")
        return losses.sum(1).mean() if self.settings.tag_loss == "sum" else losses.mean()


@register_method("bhc", title="BHC", family="proxy", year=2015, settings=BhcSettings)
class Bhc(_LatentBits):
    """Binary hash codes, Lin et al. 2015: the cross-entropy of the classifier.

    The training files of kevinlin311tw/caffe-cvprw15 could not be looked up. Those of the same authors in
    kevinlin311tw/Caffe-DeepBinaryCode (`mycifar10/KevinNet/CIFAR10-48`, `SSDH/train_val.prototxt`) have the learning rates
    x 10 for the classifier's weights and x 20 for its biases, where those of the layer before have x 1 and x 2; the
    initial standard deviation is 0.01 in the first and 0.2 in the second. Ours: weights and biases learn at one rate, the
    optimizer is AdamW, and tags.
    """

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return self.classification_loss(embeddings, targets)


@register_method("ssdh", title="SSDH", family="proxy", year=2018, settings=SsdhSettings)
class Ssdh(_LatentBits):
    """Supervised semantics-preserving deep hashing, Yang, Lin and Chen 2018.

    The loss is the cross-entropy E1, minus 1/2 the mean of (a - 1/2)^2, which pushes activations to 0 and 1, plus 1/2 the
    mean over images of (mean(a) - 1/2)^2, which balances bits.

    Checked against kevinlin311tw/Caffe-DeepBinaryCode: `examples/SSDH/train_val.prototxt`, `K1_euclidean_loss_layer.cpp`,
    `K2_euclidean_loss_layer.cpp` and `multi_label_sigmod_loss_layer.cpp`; the paper could not be looked up. These layers
    divide the two means by 2 N, where N = 32 is the batch size, and the second one is (mean(a) - 1/2)^2 of all bits of a
    batch, so that both terms nearly vanish. Ours: 1/2 in place of 1 / (2 N), the second term for each image, and one
    learning rate for weights and biases.
    """

    settings: SsdhSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return E1 - saturation * mean (a - 1/2)^2 + balance * mean over images of (mean(a) - 1/2)^2."""
        active = (embeddings + 1) / 2
        loss = self.classification_loss(embeddings, targets)
        loss = loss - self.settings.saturation * (active - 0.5).square().mean()
        return loss + self.settings.balance * (active.mean(1) - 0.5).square().mean()
