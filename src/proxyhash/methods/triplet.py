"""The Hamming triplet loss alone, section 4.4: what the paper's ablation compares the joint loss with."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import hamming_triplet, margin_in_bits
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class TripletSettings(MethodSettings):
    """How far apart, and how many of a kind."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"margin": 0.0625, "per_class": 8},
        {"margin": 0.125, "per_class": 8},
        {"margin": 0.25, "per_class": 8},
    )

    margin: float = 0.0  # in bits, or below 1 as a share of the code; 0: a sixteenth
    per_class: int = 4  # images of a class in a batch


@register_method("triplet", title="Triplet", family="triplet", year=2019, settings=TripletSettings)
class Triplet(HashingMethod):
    """The mean of softplus(m + d_H(x, x+) - d_H(x, x-)) over all triplets of a batch."""

    settings: TripletSettings

    def __init__(self, data: TrainingData, settings: TripletSettings) -> None:
        super().__init__(data, settings)
        if settings.margin < 0:
            raise InputError("The margin may not be negative.")
        check_int("per_class", settings.per_class, 2)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return hamming_triplet(embeddings, targets, margin_in_bits(self.settings.margin or None, embeddings.shape[1]))
