"""CSQ: every image pulled to the hash centre of its class (Yuan et al. 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

from proxyhash.methods.deep.quantisation import quantisation
from proxyhash.methods.registry import deep_method
from proxyhash.proxies.constructions.hadamard import hadamard
from proxyhash.support.seeds import generator
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class CsqSettings:
    """The authors' weight of the quantisation term."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"quantisation": 1e-4}, {"quantisation": 1e-2}, {"quantisation": 0.1})

    quantisation: float = 1e-4


class CentralSimilarity(Objective):
    """Binary cross-entropy between (nu + 1) / 2 and the bits of the image's centre, plus a little quantisation.

    Centres are rows of a Hadamard matrix and their complements, or random bits where these are too few. An image with
    several tags goes to the majority vote of their centres; a tied bit is decided by a coin thrown once for all images.
    """

    centres: Tensor
    coin: Tensor

    def __init__(self, task: Task, settings: CsqSettings) -> None:
        super().__init__()
        self.weight, self.tagged = settings.quantisation, task.tags is not None
        random = generator(task.seed, "csq")
        self.register_buffer("centres", torch.from_numpy(_centres(len(task.names), task.bits, random)))
        self.register_buffer("coin", torch.from_numpy(_signs((task.bits,), random)))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        goal = self._goal(targets)
        loss = binary_cross_entropy(((nu + 1) / 2).clamp(0, 1), (goal + 1) / 2)
        return loss + self.weight * quantisation(nu)

    def scores(self, nu: Tensor) -> Tensor:
        """Return the inner products with the centres (N, C)."""
        return nu @ self.centres.T

    def _goal(self, targets: Tensor) -> Tensor:
        if not self.tagged:
            return self.centres[targets]
        votes = targets @ self.centres + 0.5 * self.coin
        return torch.where(votes >= 0, 1.0, -1.0)


def _centres(classes: int, bits: int, random: np.random.Generator) -> NDArray[np.float32]:
    matrix = hadamard(bits)
    if matrix is None or classes > 2 * bits:
        return _signs((classes, bits), random)
    both = np.concatenate([matrix, -matrix]).astype(np.float32)
    return (
        both[random.permutation(len(both))[:classes]] if classes > bits else both[:bits][random.permutation(bits)[:classes]]
    )


def _signs(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    signs: NDArray[np.float32] = (random.integers(0, 2, shape) * 2 - 1).astype(np.float32)
    return signs


@deep_method("csq", "CSQ", "centres", 2020, CsqSettings)
def csq(task: Task, settings: CsqSettings) -> CentralSimilarity:
    """Return the objective."""
    return CentralSimilarity(task, settings)
