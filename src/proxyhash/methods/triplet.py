"""Hamming triplet loss without proxies, section 4.4."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import HammingTripletLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class TripletSettings(MethodSettings):
    """Settings of the triplet loss."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"margin": 0.0625, "samples_per_class": 8},
        {"margin": 0.125, "samples_per_class": 8},
        {"margin": 0.25, "samples_per_class": 8},
    )

    margin: float | None = None  # in bits, or below 1 as a fraction of the code; None: 1/16
    samples_per_class: int = 4  # images of a class in a batch


@register_method("triplet", title="Triplet", family="triplet", year=2019, settings=TripletSettings)
class Triplet(HashingMethod):
    """Hamming triplet loss, section 4.4: the paper's ablation compares it with the joint loss.

    The loss is the mean of log(1 + exp(m + d_H(x, x+) - d_H(x, x-))) over all triplets of a batch, see
    `proxyhash.losses.HammingTripletLoss`.
    """

    settings: TripletSettings

    def __init__(self, data: TrainingData, settings: TripletSettings) -> None:
        super().__init__(data, settings)
        self.loss = HammingTripletLoss(settings.margin)
        check_int("samples_per_class", settings.samples_per_class, 2)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss: Tensor = self.loss(embeddings, targets)
        return loss
