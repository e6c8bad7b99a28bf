"""MI-Hash: mutual information of distances and similarity (Cakir, He, Bargal and Sclaroff 2017, 2019)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from proxyhash.losses import MutualInformationLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HashHead, HeadConfig, LinearHead

_TANH_SLOPE = 2.0  # 2 sigmoid(a u) - 1 = tanh(a u / 2): with this a the shared head


@dataclass(frozen=True)
class MiHashSettings(MethodSettings):
    """Settings of MI-Hash: by default those of the authors' command for 100 classes; `samples_per_class` is ours.

    The authors' random batches hold few pairs of a class where there are many classes. `bins=bits:slope=2` is our earlier
    form.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"samples_per_class": 16},
        {"samples_per_class": 8},
        {"samples_per_class": 16, "slope": 2.0},
    )

    bins: int | Literal["bits"] = 16  # of the histograms, or "bits": one for every number of bits
    slope: float = 10.0  # a of 2 sigmoid(a u) - 1
    samples_per_class: int = 8

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried: numbers of images of a class, and another slope unless it is given."""
        if "slope" in (fixed or {}):
            return {"samples_per_class": 4}, {"samples_per_class": 8}, {"samples_per_class": 16}
        return cls.SEARCH_SPACE


@register_method("mihash", title="MI-Hash", family="ranking", year=2017, settings=MiHashSettings)
class MiHash(HashingMethod):
    """MIHash, Cakir et al. 2017, 2019.

    The loss is the mean over the images of a batch as queries of -(H(D) - H(D | C)). D is the distance to another image
    of the batch, in soft histograms with B bins beside that of 0; C says whether the two are similar, with the batch's own
    frequencies. Distances are those of 2 sigmoid(a u) - 1 with u not bounded.

    Checked against fcakir/deep-mihash (`mihash/mi_forward.m`, `mi_backward.m`, `get_opts.m`, README): the histograms, the
    loss, B = 16 and a = 10, which are its command for ImageNet100. Its defaults are B = K / 2 and a = 1; its other commands
    have 12 to 32 bins and slopes of 1 and 30. Entropies are in nats instead of bits, a constant factor.
    """

    settings: MiHashSettings

    def __init__(self, data: TrainingData, settings: MiHashSettings) -> None:
        super().__init__(data, settings)
        self.loss = MutualInformationLoss(None if settings.bins == "bits" else settings.bins)

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh: the method has its own, unless its slope is that of the shared head."""
        return HashHead(config) if self.settings.slope == _TANH_SLOPE else LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; queries with only similar or only dissimilar images are left out."""
        if self.settings.slope != _TANH_SLOPE:
            embeddings = torch.tanh(self.settings.slope / 2 * embeddings)
        loss: Tensor = self.loss(embeddings, targets)
        return loss
