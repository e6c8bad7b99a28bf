"""ADSH: a network for queries, and codes of the database that are learned on their own (Jiang and Li 2018)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.deep.centres import random_signs
from proxyhash.methods.registry import deep_method
from proxyhash.methods.shallow.discrete import cyclic_descent
from proxyhash.models.heads import Head
from proxyhash.training.objectives import Objective, Task
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class AdshSettings:
    """The weight of the distance between an image's two codes, and sweeps over the bits after each epoch."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"agreement": 0.001}, {"agreement": 0.01}, {"agreement": 0.1})

    agreement: float = 0.01  # g; the authors' gamma of 200 for 2,000 queries is 0.1 / K of our means
    sweeps: int = 3


class Asymmetric(Objective):
    """The mean over i, j of (u_i.v_j / K - S_ij)^2, plus g mean_k (u_ik - v_ik)^2: u by the network, v the database's codes.

    S is 1 in a class and -r across, r the ratio of similar to dissimilar pairs, as in the authors' code; the same goal of
    -1 for the many dissimilar pairs would drown the others. It is never written out: with one-hot classes Y, S = (1 + r)
    YY' - r, so that the sum over all j needs only V'V, Y'V and the sum of V. After each epoch V is updated bit by bit, each
    exactly; all training images are queries (the authors draw 2,000 a round). V starts as one random code a class (ours).
    New images are coded by the network.
    """

    codes: Tensor
    gram: Tensor
    sums: Tensor
    members: Tensor

    def __init__(self, task: Task, settings: AdshSettings) -> None:
        super().__init__()
        assert task.labels is not None
        self.settings, self.labels, self.ratio = settings, task.labels, pair_ratio(task.labels)
        start = random_signs((len(task.names), task.bits), generator(task.seed, "adsh"))
        self.register_buffer("codes", torch.from_numpy(start[task.labels]))
        self.register_buffer("gram", torch.zeros(task.bits, task.bits))
        self.register_buffer("sums", torch.zeros(len(task.names), task.bits))
        self.register_buffer("members", torch.from_numpy(np.bincount(task.labels, minlength=len(task.names))))
        self._sum_up()

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        bits, count = nu.shape[1], len(self.codes)
        pulls = (1 + self.ratio) * self.sums[targets] - self.ratio * self.sums.sum(0)  # sum_j S_ij v_j
        goals = self.members[targets] + self.ratio**2 * (count - self.members[targets])  # sum_j S_ij^2
        squares = ((nu @ self.gram) * nu).sum(1) - 2 * bits * (nu * pulls).sum(1) + bits**2 * goals
        return squares.mean() / (count * bits**2) + self.settings.agreement * (nu - self.codes[indices]).square().mean()

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of the database."""
        codes = database_step(self.codes.cpu().numpy(), embed().numpy(), self.labels, self.settings)
        self.codes.copy_(torch.from_numpy(codes))
        self._sum_up()

    def training_codes(self) -> Tensor:
        """Return V (n, bits)."""
        return self.codes

    def _sum_up(self) -> None:
        self.gram.copy_(self.codes.T @ self.codes)
        classes = torch.from_numpy(self.labels).to(self.codes.device)
        self.sums.zero_().index_add_(0, classes, self.codes)


def database_step(codes: Floats, nu: Floats, labels: NDArray[np.int64], settings: AdshSettings) -> Floats:
    """Return V (n, bits) after sweeps that lower mean_i sum_j (u_i.v_j - K S_ij)^2 / K^2 + g ||V - U||^2 / K."""
    bits, classes = nu.shape[1], np.eye(int(labels.max()) + 1, dtype=np.float32)[labels]
    ratio = pair_ratio(labels)
    pulls = (1 + ratio) * classes @ (classes.T @ nu) - ratio * nu.sum(0)  # sum_i S_ij u_i
    target = pulls / (bits * len(nu)) + settings.agreement / bits * nu
    return cyclic_descent(codes, target, nu.T @ nu / (bits**2 * len(nu)), settings.sweeps)


def pair_ratio(labels: NDArray[np.int64]) -> float:
    """Return how many pairs are similar for each that is not."""
    similar = float(np.square(np.bincount(labels).astype(np.float64)).sum())
    return similar / max(1.0, len(labels) ** 2 - similar)


@deep_method("adsh", "ADSH", "pairwise", 2018, AdshSettings, takes_tags=False)
def adsh(task: Task, settings: AdshSettings) -> Asymmetric:
    """Return the objective."""
    return Asymmetric(task, settings)
