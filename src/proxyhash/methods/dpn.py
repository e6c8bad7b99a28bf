"""DPN: a hinge for each bit of a class's code (Fan, Ng, Ju, Zhang, Liu, Chan and Yang 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import polarization_loss
from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import HashCenters, random_signs
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class DpnSettings(MethodSettings):
    """Settings of DPN: by default the authors' margin."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"margin": 0.5}, {"margin": 1.0}, {"margin": 2.0})

    margin: float = 1.0


@register_method("dpn", title="DPN", family="centers", year=2020, settings=DpnSettings)
class Dpn(HashCenters):
    """Deep polarized network, Fan et al. 2020.

    The loss is the mean over images and bits of max(0, m - u_k t_k), with u (N, K) not bounded and t the random code of
    the image's class. The authors draw the codes with probability 1/2, as here, or adapt them to the classes. For tags
    t is the majority vote of their codes.
    """

    settings: DpnSettings

    def __init__(self, data: TrainingData, settings: DpnSettings) -> None:
        super().__init__(data, settings, random_signs((data.num_classes, data.bits), generator(data.seed, "dpn")))

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh, under which every bit would stay short of the margin."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return polarization_loss(embeddings, self.target_codes(targets), self.settings.margin)
