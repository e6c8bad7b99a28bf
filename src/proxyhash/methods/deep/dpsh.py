"""DPSH: the likelihood of pairs (Li, Wang and Kang 2016)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.pairs import mean_over, pair_losses, pairs_of_a_batch
from proxyhash.methods.deep.quantisation import quantisation
from proxyhash.methods.registry import deep_method
from proxyhash.training.losses.products import inner_products
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class DpshSettings:
    """The weight of the quantisation term, and how many of a class a batch holds (ours: a plain batch of 100 classes has few
    similar pairs)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"quantisation": 0.01},
        {"quantisation": 0.1},
        {"quantisation": 0.01, "per_class": 16},
    )

    quantisation: float = 0.1
    per_class: int = 8


class PairLikelihood(Objective):
    """-mean over pairs of s theta - log(1 + e^theta), theta = u_i.u_j / 2, plus eta times (u - b)^2.

    Pairs of a batch; an image is no pair with itself. The authors' u is not bounded, ours is a tanh.
    """

    def __init__(self, settings: DpshSettings, *, tags: bool) -> None:
        super().__init__()
        self.weight = settings.quantisation
        self.per_class = 0 if tags else settings.per_class

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        theta = inner_products(nu, nu) / 2
        similar, dissimilar = pairs_of_a_batch(targets)
        return mean_over(pair_losses(theta, similar), similar | dissimilar) + self.weight * quantisation(nu)


@deep_method("dpsh", "DPSH", "pairwise", 2016, DpshSettings)
def dpsh(task: Task, settings: DpshSettings) -> PairLikelihood:
    """Return the objective."""
    return PairLikelihood(settings, tags=task.tags is not None)
