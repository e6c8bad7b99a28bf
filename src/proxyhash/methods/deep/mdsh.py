"""MDSH: cross-entropy to centres with a guaranteed distance (Wang, Pan, Liu et al. 2023)."""

from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import normalize

from proxyhash.methods.registry import deep_method
from proxyhash.proxies import ProxySet, design_proxies
from proxyhash.training.losses import cosine_cross_entropy
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class MdshSettings:
    """Nothing to choose: the logits' scale is sqrt(K)."""


class DistantCentres(Objective):
    """Softmax cross-entropy of sqrt(K) cos(nu, c_k).

    The authors guarantee the Gilbert-Varshamov distance between centres; ours are the best code that we can construct, which
    is never less.
    """

    centres: Tensor

    def __init__(self, centres: ProxySet) -> None:
        super().__init__()
        self.designed = centres
        self.register_buffer("centres", torch.from_numpy(centres.weights.copy()))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return cosine_cross_entropy(nu, targets, self.centres, sqrt(nu.shape[1]))

    def scores(self, nu: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return normalize(nu) @ normalize(self.centres).T

    def proxies(self) -> ProxySet:
        """Return the centres."""
        return self.designed


@deep_method("mdsh", "MDSH", "centres", 2023, MdshSettings, takes_tags=False)
def mdsh(task: Task, settings: MdshSettings) -> DistantCentres:  # noqa: ARG001
    """Return the objective."""
    return DistantCentres(design_proxies(len(task.names), task.bits, "code", seed=task.seed, progress=task.progress))
