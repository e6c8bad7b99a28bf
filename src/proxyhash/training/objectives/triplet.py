"""The Hamming triplet loss alone, section 4.4: what the paper's ablation compares the joint loss with."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.training.losses import hamming_triplet, margin_in_bits
from proxyhash.training.objectives.objective import Objective, Task
from proxyhash.training.objectives.registry import objective
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class TripletSettings:
    """How far apart, and how many of a kind."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"margin": 0.0625, "per_class": 8},
        {"margin": 0.125, "per_class": 8},
        {"margin": 0.25, "per_class": 8},
    )

    margin: float = 0.0  # in bits, or below 1 as a share of the code; 0: a sixteenth
    per_class: int = 4  # images of a class in a batch


class TripletObjective(Objective):
    """The mean of softplus(m + d_H(x, x+) - d_H(x, x-)) over all triplets of a batch."""

    def __init__(self, settings: TripletSettings, *, tags: bool) -> None:
        super().__init__()
        self.margin = settings.margin
        self.per_class = 0 if tags else settings.per_class

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return hamming_triplet(nu, targets, margin_in_bits(self.margin, nu.shape[1]))


@objective("triplet", "the Hamming triplet loss alone", TripletSettings)
def build(task: Task, settings: TripletSettings) -> TripletObjective:
    """Return the objective."""
    if settings.margin < 0:
        raise InputError("The margin may not be negative.")
    check_int("per_class", settings.per_class, 2)
    return TripletObjective(settings, tags=task.tags is not None)
