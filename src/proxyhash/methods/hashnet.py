"""HashNet: weighted likelihood of pairs, with a tanh that approaches the sign (Cao, Long, Wang and Yu 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxyhash.losses import PairwiseLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, LinearHead


@dataclass(frozen=True)
class HashNetSettings(MethodSettings):
    """Settings of HashNet: by default the authors' slope; `samples_per_class` is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"slope": 10.0}, {"slope": 5.0}, {"slope": 10.0, "samples_per_class": 4})

    slope: float = 10.0  # alpha, divided by the bits: theta = (alpha / K) h_i.h_j
    growth: float = 4.0  # beta = sqrt(1 + growth * epochs): twelve epochs end where the authors' 10,000 steps do
    samples_per_class: int = 8


@register_method("hashnet", title="HashNet", family="pairwise", year=2017, settings=HashNetSettings)
class HashNet(HashingMethod):
    """HashNet, Cao et al. 2017.

    The loss is the mean of log(1 + e^theta) - s theta over similar pairs, plus the same mean over dissimilar ones,
    theta = (alpha / K) h_i.h_j, h = tanh(beta u) (N, K).

    The two means are the authors' weights |S| / |S_1| and |S| / |S_0|, for the pairs of a batch. The authors raise beta
    in stages; here an epoch is a stage.
    """

    settings: HashNetSettings
    beta: Tensor
    epochs: Tensor

    def __init__(self, data: TrainingData, settings: HashNetSettings) -> None:
        super().__init__(data, settings)
        self.pairs = PairwiseLoss(settings.slope / data.bits, balanced=True)
        self.register_buffer("beta", torch.ones(()))
        self.register_buffer("epochs", torch.zeros(()))

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh: the method has its own."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss: Tensor = self.pairs(torch.tanh(self.beta * embeddings), targets)
        return loss

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Make the tanh steeper."""
        self.epochs += 1
        self.beta.copy_((1 + self.settings.growth * self.epochs).sqrt())
