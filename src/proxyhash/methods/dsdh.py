"""DSDH: likelihood of pairs, and codes from which labels are regressed (Li, Sun, He and Tan 2017)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.pair_bank import pair_loss
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HashHead, Head, HeadConfig, LinearHead

Floats = NDArray[np.float32]
ETA = 55.0  # the authors' weight of sum ||b - u||^2 beside the sum over pairs


@dataclass(frozen=True)
class DsdhSettings(MethodSettings):
    """Settings of DSDH: by default the authors', for random batches; None stands for what `codes` needs.

    `codes=epoch` is our earlier form: codes of all images that are updated once an epoch, with eta = 0.1 of a mean over bits
    both in the loss and in the update, so that labels count 550 times as much in it; 8 images of a class in a batch; tanh.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"quantization": 0.1}, {"samples_per_class": 16})

    pairs: Literal["batch", "all"] = "batch"  # of a batch, or with all training images, as for DPSH
    codes: Literal["batch", "epoch"] = "batch"  # updated for every batch, or for all images after every epoch
    regression: float = 1.0  # mu, of the labels' regression from the codes
    ridge: float = 0.1  # nu, of the regression's weights
    quantization: float | None = None  # weight of a mean over bits; None: the authors' 55 K / n, or 0.1 with codes=epoch
    sweeps: int | None = None  # over the bits at most; None: 10, or 3 with codes=epoch
    samples_per_class: int | None = None  # in a batch; 0: random batches; None: 0, or 8 with codes=epoch

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried, which depends on the codes."""
        if (fixed or {}).get("codes") == "epoch":
            return {"quantization": 0.1}, {"quantization": 0.01}, {"regression": 10.0}
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with those filled in that depend on the codes."""
        epoch = self.codes == "epoch"
        return replace(
            self,
            quantization=0.1 if epoch and self.quantization is None else self.quantization,
            sweeps=(3 if epoch else 10) if self.sweeps is None else self.sweeps,
            samples_per_class=(8 if epoch else 0) if self.samples_per_class is None else self.samples_per_class,
        )


@register_method("dsdh", title="DSDH", family="pairwise", year=2017, revision=2, settings=DsdhSettings)
class Dsdh(HashingMethod):
    """Deep supervised discrete hashing, Li et al. 2017.

    The loss is that of DPSH with other codes B than the signs of u: pairs, plus (eta / n) mean ||b - u||^2, with u (N, K)
    not bounded and n training images. For every batch W is regressed from sign(U), (B'B + (nu / mu) I) W = B'Y for one-hot
    classes or tags Y (N, C), and B is found from zero by sweeps over the bits, each bit exactly, for mu ||Y - B W||^2 +
    eta ||B - U||^2. With eta = 55 the codes are nearly sign(U).

    Checked against liqi-casia/DSDH-HashingCode (`train.m`, `RRC.m`, `main.m`): eta, mu, nu, the sweeps, the batches. Its
    pairs are those with all training images; for ours see DPSH.
    """

    waits_for_device = True  # codes of a batch are found on the CPU
    settings: DsdhSettings
    codes: Tensor

    def __init__(self, data: TrainingData, settings: DsdhSettings) -> None:
        super().__init__(data, settings)
        labels = data.require_labels()
        self.classes, self.per_epoch = data.num_classes, settings.codes == "epoch"
        scale = data.bits / len(labels)
        self.quantization = ETA * scale if settings.quantization is None else settings.quantization
        self.pairs = pair_loss(settings.pairs, labels, data.bits)
        self.eta = self.quantization if self.per_epoch else self.quantization / scale  # beside mu
        if self.per_epoch:
            self.labels = labels.one_hot()
            self.register_buffer("codes", torch.zeros(len(labels), data.bits))

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh, or with codes=epoch the shared one."""
        return HashHead(config) if self.per_epoch else LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        pairs: Tensor = self.pairs(embeddings, targets, indices)
        codes = self._known_codes(embeddings, indices) if self.per_epoch else self._batch_codes(embeddings, targets)
        return pairs + self.quantization * (embeddings - codes).square().mean()

    def _known_codes(self, embeddings: Tensor, indices: Tensor) -> Tensor:
        known = self.codes[indices]
        return torch.where(known == 0, torch.where(embeddings >= 0, 1.0, -1.0), known)

    def _batch_codes(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """Return B (N, K) of a batch; it is small, so that a CPU takes the many short steps faster than a GPU."""
        labels = one_hot(targets, self.classes) if targets.ndim == 1 else targets
        u = embeddings.detach().float().cpu().numpy()
        found = discrete_step(_signs(u), u, labels.float().cpu().numpy(), self.settings, self.eta, start=np.zeros_like(u))
        return torch.from_numpy(found).to(embeddings)

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of all images, with codes=epoch."""
        if not self.per_epoch:
            return
        embeddings = embed().numpy()
        codes = self.codes.cpu().numpy()
        codes = _signs(embeddings) if not codes.any() else codes
        self.codes.copy_(torch.from_numpy(discrete_step(codes, embeddings, self.labels, self.settings, self.eta)))


def discrete_step(
    codes: Floats, embeddings: Floats, labels: Floats, settings: DsdhSettings, eta: float, *, start: Floats | None = None
) -> Floats:
    """Return codes (n, bits) that lower mu ||Y - B W||^2 + eta ||B - U||^2, for W regressed from `codes`.

    Sweeps start at `codes`, or at `start`. No sweep over signs raises the objective.
    """
    assert settings.sweeps is not None
    gram = codes.T @ codes + settings.ridge / settings.regression * np.eye(codes.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
    target = settings.regression * labels @ weights.T + eta * embeddings
    coupling = (settings.regression * weights @ weights.T).astype(np.float32)
    return cyclic_descent(codes if start is None else start, target, coupling, settings.sweeps)


def _signs(embeddings: Floats) -> Floats:
    signs: Floats = np.where(embeddings >= 0, np.float32(1), np.float32(-1))
    return signs
