"""DQN: cosines of pairs, and a product quantiser that the embedding is drawn to (Cao, Long, Wang, Zhu and Wen 2016)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from proxyhash.methods.deep.pairs import mean_over, pairs_of_a_batch
from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import Head, HeadConfig, QuantisedHead, UnitQuantisedHead
from proxyhash.training.losses.products import inner_products
from proxyhash.training.objectives import Objective, Task
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class DqnSettings:
    """How wide the embedding is, what quantisation weighs, and how many of a class a batch holds."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"quantisation": 0.01},
        {"quantisation": 0.1},
        {"quantisation": 0.1, "width": 256},
    )

    width: int = 128  # ours
    quantisation: float = 0.1  # ours, of a mean; 0.01 does as well on held-out digits
    per_class: int = 8  # ours


class QuantisedCosines(Objective):
    """The mean of (1 - cos(z_i, z_j))^2 over similar pairs, plus (-1 - cos)^2 over dissimilar ones, plus l ||z - C h||^2.

    Two means let few similar pairs count as much as many others (ours). z has length 1 (ours): the loss does not see its
    length, the distance that is searched by does. Codebooks C and codes h are alternated after each epoch, for all images.
    """

    quantised: Tensor

    def __init__(self, task: Task, settings: DqnSettings) -> None:
        super().__init__()
        self.width = check_int("width", settings.width, 1)
        self.weight, self.per_class = settings.quantisation, 0 if task.tags is not None else settings.per_class
        images = len(task.labels if task.labels is not None else task.indicator())
        self.register_buffer("quantised", torch.zeros(images, self.width))

    def head(self, shape: HeadConfig) -> UnitQuantisedHead:
        """Return a head with vectors of length 1."""
        return UnitQuantisedHead(replace(shape, outputs=self.width))

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch of vectors z (N, width); quantisation counts from the second epoch on."""
        similar, dissimilar = pairs_of_a_batch(targets)
        cosines = inner_products(nu, nu)
        loss = mean_over((1 - cosines).square(), similar) + mean_over((-1 - cosines).square(), dissimilar)
        nearest = self.quantised[indices]
        errors = (nu - nearest).square().sum(1)
        return loss + self.weight * mean_over(errors, nearest.any(1))

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Fit the quantiser, and note what it makes of each image."""
        assert isinstance(head, QuantisedHead)
        z = embed().numpy()
        head.learn_codebooks(z)
        self.quantised.copy_(torch.from_numpy(head.quantised(z)))


@deep_method("dqn", "DQN", "pairwise", 2016, DqnSettings, searches="product quantiser")
def dqn(task: Task, settings: DqnSettings) -> QuantisedCosines:
    """Return the objective."""
    return QuantisedCosines(task, settings)
