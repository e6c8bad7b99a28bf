"""TALR-AP: relaxed tie-aware average precision (He, Cakir, Bargal and Sclaroff 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import AveragePrecisionLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class TalrApSettings(MethodSettings):
    """Settings of TALR-AP; `samples_per_class` is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"samples_per_class": 4}, {"samples_per_class": 8}, {"samples_per_class": 16})

    samples_per_class: int = 8


@register_method("talr-ap", title="TALR-AP", family="ranking", year=2018, settings=TalrApSettings)
class TalrAp(HashingMethod):
    """TALR-AP, He et al. 2018.

    The loss is 1 minus the mean of AP_r over the images of a batch as queries, on the soft histograms of MI-Hash (N, K
    + 1).

    Checked against kunhe/TALR (`apr_s_forward.m`, `main/get_opts.m`, `run_imagenet.m`): the simplified AP_r and a bin for
    every number of bits. Their 2 sigmoid(a u) - 1 is the shared head for a = 2. Their default is a = 1; their command for
    ImageNet has 16 bins and a = 10.
    """

    settings: TalrApSettings

    def __init__(self, data: TrainingData, settings: TalrApSettings) -> None:
        super().__init__(data, settings)
        self.loss = AveragePrecisionLoss()

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; a query without similar images does not count."""
        loss: Tensor = self.loss(embeddings, targets)
        return loss
