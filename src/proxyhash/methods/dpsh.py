"""DPSH: likelihood of pairs (Li, Wang and Kang 2016)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from proxyhash.losses import quantization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.pair_bank import pair_loss
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HashHead, HeadConfig, LinearHead

ETA = 10.0  # the authors' weight of sum ||u - b||^2 beside the sum over pairs, on CIFAR-10


@dataclass(frozen=True)
class DpshSettings(MethodSettings):
    """Settings of DPSH: by default the authors' loss, for random batches; None stands for what `tanh` needs.

    `tanh=true` is our earlier form, with 8 images of a class in a batch and a quantization weight of 0.1. `pairs=all` is
    the authors' way to sum over pairs.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"quantization": 0.1}, {"samples_per_class": 16})

    pairs: Literal["batch", "all"] = "batch"  # of a batch, or with all training images (`PairBank`)
    tanh: bool = False  # whether u is bounded
    quantization: float | None = None  # weight of a mean over bits; None: the authors' 10 K / n, or 0.1 with tanh
    samples_per_class: int | None = None  # in a batch; 0: random batches; None: 0, or 8 with tanh

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried, which depends on the form."""
        if (fixed or {}).get("tanh"):
            return {"quantization": 0.01}, {"quantization": 0.1}, {"quantization": 0.01, "samples_per_class": 16}
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with those filled in that depend on the form."""
        return replace(
            self,
            quantization=0.1 if self.tanh and self.quantization is None else self.quantization,
            samples_per_class=(8 if self.tanh else 0) if self.samples_per_class is None else self.samples_per_class,
        )


@register_method("dpsh", title="DPSH", family="pairwise", year=2016, settings=DpshSettings)
class Dpsh(HashingMethod):
    """Deep pairwise-supervised hashing, Li, Wang and Kang 2016.

    The loss is the mean over pairs of log(1 + e^theta) - s theta, theta = u_i.u_j / 2, plus (eta / n) mean ||u - b||^2, with
    u (N, K) not bounded, b its signs, and n training images.

    Checked against jiangqy/DPSH-pytorch (`DPSH_CIFAR_10.py`; eta = 10 in its demo) and against `train.m` of
    liqi-casia/DSDH-HashingCode, which is derived from the authors' MATLAB code; that code itself was not found. The authors
    pair each image of a batch with all training images, at the embeddings that these had last. Ours are the pairs of a
    random batch, an estimate of the same mean without its delay: with AdamW and few epochs a bank of old embeddings does not
    train (`pairs=all`, see `PairBank`).
    """

    settings: DpshSettings

    def __init__(self, data: TrainingData, settings: DpshSettings) -> None:
        super().__init__(data, settings)
        self.pairs = pair_loss(settings.pairs, data.require_labels(), data.bits)
        authors = ETA * data.bits / len(data.require_labels())
        self.quantization = authors if settings.quantization is None else settings.quantization

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh, or the shared one with it."""
        return HashHead(config) if self.settings.tanh else LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        pairs: Tensor = self.pairs(embeddings, targets, indices)
        return pairs + self.quantization * quantization_loss(embeddings)
