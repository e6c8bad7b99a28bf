"""DTSH: the likelihood of triplets (Wang, Shi and Kitani 2016)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.quantisation import quantisation
from proxyhash.methods.registry import deep_method
from proxyhash.training.losses import hamming_triplet
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class DtshSettings:
    """The authors' margin, half the code; the weight of the quantisation term; images of a class in a batch (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (  # with many classes less than the authors' margin is better
        {"margin": 0.0625, "per_class": 8},
        {"margin": 0.125, "per_class": 8},
        {"margin": 0.5, "per_class": 8},
    )

    margin: float = 0.5  # as a share of the code
    quantisation: float = 0.1
    per_class: int = 4


class TripletLikelihood(Objective):
    """-mean log sigmoid(theta+ - theta- - m) + eta (u - b)^2, theta = u_i.u_j / 2, over all triplets of a batch.

    theta = K / 2 - d_H, so the first term is the softplus of m + d_H(x, x+) - d_H(x, x-): the paper's Hamming triplet loss.
    """

    def __init__(self, settings: DtshSettings, *, tags: bool) -> None:
        super().__init__()
        self.settings = settings
        self.per_class = 0 if tags else settings.per_class

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margin = self.settings.margin * nu.shape[1]
        return hamming_triplet(nu, targets, margin) + self.settings.quantisation * quantisation(nu)


@deep_method("dtsh", "DTSH", "triplet", 2016, DtshSettings)
def dtsh(task: Task, settings: DtshSettings) -> TripletLikelihood:
    """Return the objective."""
    return TripletLikelihood(settings, tags=task.tags is not None)
