"""OrthoHash: one cosine cross-entropy to fixed random codes (Hoe, Ng, Zhang, Chan, Song and Xiang 2021)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from proxyhash.methods.registry import deep_method
from proxyhash.training.objectives import Objective, Task
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class OrthoHashSettings:
    """The authors' scale and margin for 100 classes."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"scale": 8.0}, {"scale": 8.0, "margin": 0.5}, {"scale": 16.0})

    scale: float = 8.0
    margin: float = 0.2


class CosineCodes(Objective):
    """Softmax cross-entropy of s (cos(nu, c_k) - m [k = y]), codes c_k of +1 and -1 drawn with probability 1/2.

    Tags are outside of it: with several right classes the margin has no single place.
    """

    codes: Tensor

    def __init__(self, task: Task, settings: OrthoHashSettings) -> None:
        super().__init__()
        self.settings = settings
        drawn = generator(task.seed, "orthohash").integers(0, 2, (len(task.names), task.bits)) * 2 - 1
        self.register_buffer("codes", torch.from_numpy(drawn.astype(np.float32)))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margins = self.settings.margin * one_hot(targets, len(self.codes))
        return cross_entropy(self.settings.scale * (self._cosines(nu) - margins), targets)

    def scores(self, nu: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return self._cosines(nu)

    def _cosines(self, nu: Tensor) -> Tensor:
        return normalize(nu) @ normalize(self.codes).T


@deep_method("orthohash", "OrthoHash", "centres", 2021, OrthoHashSettings, takes_tags=False)
def orthohash(task: Task, settings: OrthoHashSettings) -> CosineCodes:
    """Return the objective."""
    return CosineCodes(task, settings)
