"""DTSH: likelihood of triplets (Wang, Shi and Kitani 2016)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import hamming_triplet, quantization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class DtshSettings(MethodSettings):
    """Settings of DTSH: by default the authors' margin; `samples_per_class` is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (  # with many classes less than the authors' margin is better
        {"margin": 0.0625, "samples_per_class": 8},
        {"margin": 0.125, "samples_per_class": 8},
        {"margin": 0.5, "samples_per_class": 8},
    )

    margin: float = 0.5  # as a share of the code
    quantization: float = 0.1
    samples_per_class: int = 4


@register_method("dtsh", title="DTSH", family="triplet", year=2016, settings=DtshSettings)
class Dtsh(HashingMethod):
    """Deep triplet-supervised hashing, Wang, Shi and Kitani 2016.

    The loss is -mean log sigmoid(theta+ - theta- - m) over all triplets of a batch, plus eta times the mean of (u -
    b)^2, theta = u_i.u_j / 2, u (N, K) and b its signs. theta = K / 2 - d_H, so the first term is the softplus of m +
    d_H(x, x+) - d_H(x, x-): the paper's Hamming triplet loss.

    Checked against Minione/DTSH (`DTSH.m`, `train_triplet.m`, `tripletSampling.m`): the loss and the margin. There u is not
    bounded, and the triplets of an image are drawn from the training images outside its batch, at the embeddings that
    these had last; ours are a tanh and all triplets of a batch (see `PairBank` for what old embeddings do). Their
    eta = 100 is that of other sums.
    """

    settings: DtshSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margin = self.settings.margin * embeddings.shape[1]
        return hamming_triplet(embeddings, targets, margin) + self.settings.quantization * quantization_loss(embeddings)
