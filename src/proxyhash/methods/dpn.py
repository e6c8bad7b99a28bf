"""DPN: a hinge for each bit of a class's code (Fan, Ng, Ju, Zhang, Liu, Chan and Yang 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from proxyhash.losses import polarization_loss
from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import HashCenters, random_signs
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class DpnSettings(MethodSettings):
    """Settings of DPN: by default the authors'.

    An image with several tags gets the sum of the losses of its tags, or with `vote` the loss of the majority vote of their
    codes (ours).
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"margin": 0.5}, {"margin": 1.0}, {"margin": 2.0})

    margin: float = 1.0
    tag_loss: Literal["sum", "vote"] = "sum"


@register_method("dpn", title="DPN", family="centers", year=2020, settings=DpnSettings)
class Dpn(HashCenters):
    """Deep polarized network, Fan et al. 2020.

    The loss is the mean over images and bits of max(0, m - u_k t_k), with u (N, K) not bounded and t the random code of
    the image's class. For an image with several tags it is the sum over its tags.

    Checked against kamwoh/DPN: `scripts/train_hashing.py`, `main.py` and `models/alexnet.py`, whose defaults are m = 1,
    codes drawn with probability 1/2 and never updated, and no further term. Ours: the mean over bits, where the authors
    have the sum, and a bias in the last layer.
    """

    settings: DpnSettings

    def __init__(self, data: TrainingData, settings: DpnSettings) -> None:
        super().__init__(data, settings, random_signs((data.num_classes, data.bits), generator(data.seed, "dpn")))

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh, under which every bit would stay short of the margin."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        if not self.has_tags or self.settings.tag_loss == "vote":
            return polarization_loss(embeddings, self.target_codes(targets), self.settings.margin)
        images, tags = targets.nonzero(as_tuple=True)
        hinges = (self.settings.margin - embeddings[images] * self.centers[tags]).clamp(min=0)
        return hinges.mean(1).sum() / len(embeddings)
