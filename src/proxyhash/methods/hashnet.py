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

STAGE = 200  # steps of a constant beta
GROWTH = 0.005  # of beta^2 in a step: 10,000 steps end at beta = 7.1


@dataclass(frozen=True)
class HashNetSettings(MethodSettings):
    """Settings of HashNet: by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"slope": 10.0}, {"growth": 4.0}, {"growth": 4.0, "samples_per_class": 8})

    slope: float = 10.0  # alpha, divided by the bits: theta = (alpha / K) h_i.h_j
    growth: float | None = None  # None: beta grows by steps; a number: beta = sqrt(1 + growth * epochs) (ours)
    samples_per_class: int = 0  # 0: random batches


@register_method("hashnet", title="HashNet", family="pairwise", year=2017, settings=HashNetSettings)
class HashNet(HashingMethod):
    """HashNet, Cao et al. 2017.

    The loss is the mean of log(1 + e^theta) - s theta over similar pairs, plus the same mean over dissimilar ones,
    theta = (alpha / K) h_i.h_j, h = tanh(beta u) (N, K), beta = sqrt(1 + 0.005 t) after t steps, raised every 200 steps.

    Checked against thuml/HashNet: `pytorch/src/loss.py`, `network.py` and `train.py`, and the Caffe layers
    `pairwise_loss_layer.cu` and `scale_tanh_layer.cpp`. The Caffe layer's likelihood is followed: in `loss.py`, s theta
    lacks the factor alpha / K. The authors' batches are random, and they train for 10,000 steps, which end at beta = 7.1.
    A training of 2,000 steps ends at 3.3; `growth=4` ends at 7 after 12 epochs. Ours: the two means are the weights
    |S| / |S_1| and |S| / |S_0| of the pairs of a batch, for which the authors set a constant (100 for 100 classes), and
    pairs lie within a batch, not between two.
    """

    settings: HashNetSettings
    beta: Tensor
    elapsed: Tensor

    def __init__(self, data: TrainingData, settings: HashNetSettings) -> None:
        super().__init__(data, settings)
        self.pairs = PairwiseLoss(settings.slope / data.bits, balanced=True)
        self.register_buffer("beta", torch.ones(()))
        self.register_buffer("elapsed", torch.zeros(()))  # steps, or epochs if `growth` is given
        self.checkpoint_names = {} if settings.growth is None else {"elapsed": "epochs"}

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh: the method has its own."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; it counts as a step."""
        if self.settings.growth is None:
            self.elapsed += 1
            self.beta.copy_((1 + GROWTH * STAGE * (self.elapsed // STAGE)).sqrt())
        loss: Tensor = self.pairs(torch.tanh(self.beta.clone() * embeddings), targets)
        return loss

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Make the tanh steeper, if `growth` is given."""
        if self.settings.growth is not None:
            self.elapsed += 1
            self.beta.copy_((1 + self.settings.growth * self.elapsed).sqrt())
