"""CSQ: every image pulled to the hash centre of its class (Yuan et al. 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.deep.centres import Centres, random_signs
from proxyhash.methods.deep.quantisation import quantisation
from proxyhash.methods.registry import deep_method
from proxyhash.proxies.constructions.hadamard import hadamard
from proxyhash.training.losses import bitwise_cross_entropy
from proxyhash.training.objectives import Task
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class CsqSettings:
    """The authors' weight of the quantisation term."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"quantisation": 1e-4}, {"quantisation": 1e-2}, {"quantisation": 0.1})

    quantisation: float = 1e-4


class CentralSimilarity(Centres):
    """Binary cross-entropy between (nu + 1) / 2 and the bits of the image's centre, plus a little quantisation.

    Centres are rows of a Hadamard matrix and their complements, or random bits where these are too few.
    """

    def __init__(self, task: Task, settings: CsqSettings) -> None:
        super().__init__(task, _centres(len(task.names), task.bits, generator(task.seed, "csq")))
        self.weight = settings.quantisation

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return bitwise_cross_entropy(nu, self.goal(targets)) + self.weight * quantisation(nu)


def _centres(classes: int, bits: int, random: np.random.Generator) -> NDArray[np.float32]:
    matrix = hadamard(bits)
    if matrix is None or classes > 2 * bits:
        return random_signs((classes, bits), random)
    both = np.concatenate([matrix, -matrix]).astype(np.float32)
    return (
        both[random.permutation(len(both))[:classes]] if classes > bits else both[:bits][random.permutation(bits)[:classes]]
    )


@deep_method("csq", "CSQ", "centres", 2020, CsqSettings)
def csq(task: Task, settings: CsqSettings) -> CentralSimilarity:
    """Return the objective."""
    return CentralSimilarity(task, settings)
