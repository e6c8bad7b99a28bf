"""NINH: a triplet ranking loss on codes that a divide-and-encode head makes (Lai, Pan, Liu and Yan 2015)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.triplets import similarity_levels, triplet_hinge
from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import DividedHead, HeadConfig
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class NinhSettings:
    """The authors' margin, one bit; images of a class in a batch (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"margin": 1.0}, {"margin": 2.0}, {"margin": 4.0})

    margin: float = 1.0
    per_class: int = 4


class DividedTriplets(Objective):
    """The mean of max(0, m + ||F - F+||^2 - ||F - F-||^2), F = (nu + 1) / 2, over all triplets of a batch."""

    def __init__(self, settings: NinhSettings, *, tags: bool) -> None:
        super().__init__()
        self.margin = settings.margin
        self.per_class = 0 if tags else settings.per_class

    def head(self, shape: HeadConfig) -> DividedHead:
        """Return the divide-and-encode head."""
        return DividedHead(shape)

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        squares = nu.square().sum(1)
        distances = (squares[:, None] + squares - 2 * nu @ nu.T) / 4
        return triplet_hinge(distances, similarity_levels(targets), self.margin)


@deep_method("ninh", "NINH", "triplet", 2015, NinhSettings)
def ninh(task: Task, settings: NinhSettings) -> DividedTriplets:
    """Return the objective."""
    return DividedTriplets(settings, tags=task.tags is not None)
