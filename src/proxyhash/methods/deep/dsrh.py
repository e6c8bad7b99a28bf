"""DSRH: rankings by how many tags are shared, with weights for their gains (Zhao, Huang, Wang and Tan 2015)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.triplets import similarity_levels, triplet_hinge
from proxyhash.methods.registry import deep_method
from proxyhash.training.losses import hamming_distances
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class DsrhSettings:
    """The margin, as a share of the code, and the weight of the balance of bits; images of a class in a batch (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"margin": 0.125}, {"margin": 0.25}, {"margin": 0.125, "per_class": 8})

    margin: float = 0.125  # rho; ours, better on held-out digits than a quarter
    balance: float = 1.0  # alpha, of a mean over bits
    per_class: int = 4


class SemanticRanking(Objective):
    """The mean of (2^r_i - 2^r_j) max(0, d(q, i) - d(q, j) + rho) where r_i > r_j, plus alpha / 2 mean_k (mean nu_k)^2.

    r is how many tags an image shares with the query, for classes 1 or 0. The authors' Z, the best gain of a ranking, is
    here the sum of the weights; their beta / 2 ||W||^2 is the plan's weight decay.
    """

    def __init__(self, settings: DsrhSettings, *, tags: bool) -> None:
        super().__init__()
        self.settings = settings
        self.per_class = 0 if tags else settings.per_class

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margin = self.settings.margin * nu.shape[1]
        ranking = triplet_hinge(hamming_distances(nu, nu), similarity_levels(targets, graded=True), margin)
        return ranking + self.settings.balance / 2 * nu.mean(0).square().mean()


@deep_method("dsrh", "DSRH", "ranking", 2015, DsrhSettings)
def dsrh(task: Task, settings: DsrhSettings) -> SemanticRanking:
    """Return the objective."""
    return SemanticRanking(settings, tags=task.tags is not None)
