"""HashNet: the likelihood of pairs, weighted, with a tanh that steepens to a sign (Cao, Long, Wang and Yu 2017)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from proxyhash.methods.deep.pairs import mean_over, pair_losses, pairs_of_a_batch
from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import Head, HeadConfig, LinearHead
from proxyhash.training.losses.products import inner_products
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class HashNetSettings:
    """The authors' slope of the likelihood; the growth of the tanh; images of a class in a batch (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"slope": 10.0}, {"slope": 5.0}, {"slope": 10.0, "per_class": 4})

    slope: float = 10.0  # alpha, divided by the bits: theta = (alpha / K) h_i.h_j
    growth: float = 4.0  # beta = sqrt(1 + growth * epochs): twelve epochs end where the authors' 10,000 steps do
    per_class: int = 8


class Continuation(Objective):
    """The mean of log(1 + e^theta) - s theta over similar pairs, plus that over dissimilar ones; h = tanh(beta u).

    Two means are the authors' weights |S| / |S_1| and |S| / |S_0|, of the pairs of a batch. They raise beta in stages; here
    an epoch is a stage.
    """

    beta: Tensor
    epochs: Tensor

    def __init__(self, settings: HashNetSettings, *, tags: bool) -> None:
        super().__init__()
        self.settings = settings
        self.per_class = 0 if tags else settings.per_class
        self.register_buffer("beta", torch.ones(()))
        self.register_buffer("epochs", torch.zeros(()))

    def head(self, shape: HeadConfig) -> LinearHead:
        """Return a head without tanh: the objective has its own."""
        return LinearHead(shape)

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        h = torch.tanh(self.beta * nu)
        theta = self.settings.slope / nu.shape[1] * inner_products(h, h)
        similar, dissimilar = pairs_of_a_batch(targets)
        losses = pair_losses(theta, similar)
        return mean_over(losses, similar) + mean_over(losses, dissimilar)

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Make the tanh steeper."""
        self.epochs += 1
        self.beta.copy_((1 + self.settings.growth * self.epochs).sqrt())


@deep_method("hashnet", "HashNet", "pairwise", 2017, HashNetSettings)
def hashnet(task: Task, settings: HashNetSettings) -> Continuation:
    """Return the objective."""
    return Continuation(settings, tags=task.tags is not None)
