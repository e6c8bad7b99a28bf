"""DSDH: likelihood of pairs, and codes from which labels are regressed (Li, Sun, He and Tan 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.losses import PairwiseLoss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DsdhSettings(MethodSettings):
    """Settings of DSDH.

    mu and nu are the authors'; eta weighs a mean over bits, as in DPSH; `samples_per_class` is ours.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantization": 0.1},
        {"quantization": 0.01},
        {"regression": 10.0},
    )

    regression: float = 1.0  # mu, of the labels' regression from the codes
    ridge: float = 0.1  # nu, of the regression's weights
    quantization: float = 0.1  # eta, of the distance of nu to the codes
    sweeps: int = 3  # over the bits after each epoch
    samples_per_class: int = 8


@register_method("dsdh", title="DSDH", family="pairwise", year=2017, settings=DsdhSettings)
class Dsdh(HashingMethod):
    """Deep supervised discrete hashing, Li et al. 2017.

    The loss is that of DPSH with codes B (n, K) of its own: pairs + eta ||b - nu||^2, B from minimizing mu ||Y - B
    W||^2 + n ||W||^2 + eta ||B - U||^2 for one-hot classes or tags Y (n, C).

    After each epoch W is regressed and B is updated bit by bit, each bit exactly, for all images. B starts as the signs
    of U.
    """

    settings: DsdhSettings
    codes: Tensor

    def __init__(self, data: TrainingData, settings: DsdhSettings) -> None:
        super().__init__(data, settings)
        self.pairs = PairwiseLoss()
        self.labels = data.require_labels().one_hot()
        self.register_buffer("codes", torch.zeros(len(self.labels), data.bits))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        pairs: Tensor = self.pairs(embeddings, targets)
        known = self.codes[indices]
        codes = torch.where(known == 0, torch.where(embeddings >= 0, 1.0, -1.0), known)
        return pairs + self.settings.quantization * (embeddings - codes).square().mean()

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of all images."""
        embeddings = embed().numpy()
        codes = self.codes.cpu().numpy()
        codes = np.where(embeddings >= 0, np.float32(1), np.float32(-1)) if not codes.any() else codes
        self.codes.copy_(torch.from_numpy(discrete_step(codes, embeddings, self.labels, self.settings)))


def discrete_step(codes: Floats, embeddings: Floats, labels: Floats, settings: DsdhSettings) -> Floats:
    """Return codes (n, bits) after a regression of `labels` (n, C) and some sweeps; neither step raises the objective."""
    gram = codes.T @ codes + settings.ridge / settings.regression * np.eye(codes.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
    target = settings.regression * labels @ weights.T + settings.quantization * embeddings
    coupling = (settings.regression * weights @ weights.T).astype(np.float32)
    return cyclic_descent(codes, target, coupling, settings.sweeps)
