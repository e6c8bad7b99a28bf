"""MI-Hash: mutual information of distances and similarity (Cakir, He, Bargal and Sclaroff 2017, 2019)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import MutualInformationLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class MiHashSettings(MethodSettings):
    """Settings of MI-Hash; `samples_per_class` is ours: the authors' batches are of 10 classes."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"samples_per_class": 4}, {"samples_per_class": 8}, {"samples_per_class": 16})

    samples_per_class: int = 8


@register_method("mihash", title="MI-Hash", family="ranking", year=2017, settings=MiHashSettings)
class MiHash(HashingMethod):
    """MIHash, Cakir et al. 2017, 2019.

    The loss is the mean over the images of a batch as queries of -(H(D) - H(D | C)). D is the distance to another image
    of the batch, in soft histograms with a bin for every number of bits; C says whether the two are similar, with the
    batch's own frequencies. The authors' 2 sigmoid(a u) - 1 is the shared head for a = 2.
    """

    settings: MiHashSettings

    def __init__(self, data: TrainingData, settings: MiHashSettings) -> None:
        super().__init__(data, settings)
        self.loss = MutualInformationLoss()

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; queries with only similar or only dissimilar images are left out."""
        loss: Tensor = self.loss(embeddings, targets)
        return loss
