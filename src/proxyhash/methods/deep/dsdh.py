"""DSDH: the likelihood of pairs, and codes from which labels can be regressed (Li, Sun, He and Tan 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.deep.pairs import mean_over, pair_losses, pairs_of_a_batch
from proxyhash.methods.registry import deep_method
from proxyhash.methods.shallow.discrete import cyclic_descent
from proxyhash.models.heads import Head
from proxyhash.training.losses.products import inner_products
from proxyhash.training.objectives import Objective, Task

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DsdhSettings:
    """The authors' mu and nu; eta is of a mean over bits, as in DPSH; images of a class in a batch (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"quantisation": 0.1}, {"quantisation": 0.01}, {"regression": 10.0})

    regression: float = 1.0  # mu, of the labels' regression from the codes
    ridge: float = 0.1  # nu, of the regression's weights
    quantisation: float = 0.1  # eta, of the distance of nu to the codes
    sweeps: int = 3  # over the bits after each epoch
    per_class: int = 8


class DiscretePairs(Objective):
    """DPSH's loss with codes B of its own: pairs + eta ||b - nu||^2, B from mu ||Y - B W||^2 + n ||W||^2 + eta ||B - U||^2.

    After each epoch W is regressed and B updated bit by bit, each exactly, for all images; B is the signs of U at first.
    Labels are one-hot classes or tags.
    """

    codes: Tensor

    def __init__(self, task: Task, settings: DsdhSettings) -> None:
        super().__init__()
        self.settings, self.per_class = settings, 0 if task.tags is not None else settings.per_class
        self.labels = task.indicator()
        self.register_buffer("codes", torch.zeros(len(self.labels), task.bits))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        similar, dissimilar = pairs_of_a_batch(targets)
        pairs = mean_over(pair_losses(inner_products(nu, nu) / 2, similar), similar | dissimilar)
        known = self.codes[indices]
        codes = torch.where(known == 0, torch.where(nu >= 0, 1.0, -1.0), known)
        return pairs + self.settings.quantisation * (nu - codes).square().mean()

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of all images."""
        nu = embed().numpy()
        codes = self.codes.cpu().numpy()
        codes = np.where(nu >= 0, np.float32(1), np.float32(-1)) if not codes.any() else codes
        self.codes.copy_(torch.from_numpy(discrete_step(codes, nu, self.labels, self.settings)))


def discrete_step(codes: Floats, nu: Floats, labels: Floats, settings: DsdhSettings) -> Floats:
    """Return codes (n, bits) after a regression of `labels` (n, C) and some sweeps; neither step raises the objective."""
    gram = codes.T @ codes + settings.ridge / settings.regression * np.eye(codes.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
    target = settings.regression * labels @ weights.T + settings.quantisation * nu
    coupling = (settings.regression * weights @ weights.T).astype(np.float32)
    return cyclic_descent(codes, target, coupling, settings.sweeps)


def discrete_value(codes: Floats, nu: Floats, labels: Floats, weights: Floats, settings: DsdhSettings) -> float:
    """Return mu ||Y - B W||^2 + n ||W||^2 + eta ||B - U||^2."""
    regression = settings.regression * np.square(labels - codes @ weights).sum() + settings.ridge * np.square(weights).sum()
    return float(regression + settings.quantisation * np.square(codes - nu).sum())


@deep_method("dsdh", "DSDH", "pairwise", 2017, DsdhSettings)
def dsdh(task: Task, settings: DsdhSettings) -> DiscretePairs:
    """Return the objective."""
    return DiscretePairs(task, settings)
