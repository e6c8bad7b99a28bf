"""TALR-AP: average precision that knows of ties, relaxed and maximized (He, Cakir, Bargal and Sclaroff 2018)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.histograms import batch_histograms
from proxyhash.methods.deep.pairs import mean_over
from proxyhash.methods.registry import deep_method
from proxyhash.training.objectives import Objective, Task


@dataclass(frozen=True)
class TalrSettings:
    """How many of a class a batch holds (ours)."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"per_class": 4}, {"per_class": 8}, {"per_class": 16})

    per_class: int = 8


class TieAwarePrecision(Objective):
    """1 - the mean over the images of a batch as queries of AP_r, on the soft histograms that MI-Hash has."""

    def __init__(self, settings: TalrSettings, *, tags: bool) -> None:
        super().__init__()
        self.per_class = 0 if tags else settings.per_class

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; a query without similar images does not count."""
        similar, dissimilar = batch_histograms(nu, targets)
        return 1 - mean_over(relaxed_average_precision(similar, dissimilar), similar.sum(1) > 0)


def relaxed_average_precision(similar: Tensor, dissimilar: Tensor) -> Tensor:
    """Return AP_r = sum_d c+_d (C+_{d-1} + C+_d + 1) / (C_{d-1} + C_d + 1) / N+ (N,), from histograms (N, bins).

    c counts all items at a distance, c+ similar ones, C and C+ are their cumulative sums. Of the exact tie-aware AP it takes
    numerator and denominator each at the middle of a tie: exact for ties of one item, or of similar items only at the top.
    """
    counts = similar + dissimilar
    ends, hits = counts.cumsum(1), similar.cumsum(1)
    precision = (2 * hits - similar + 1) / (2 * ends - counts + 1)
    return (similar * precision).sum(1) / similar.sum(1).clamp(min=1e-12)


@deep_method("talr-ap", "TALR-AP", "ranking", 2018, TalrSettings)
def talr(task: Task, settings: TalrSettings) -> TieAwarePrecision:
    """Return the objective."""
    return TieAwarePrecision(settings, tags=task.tags is not None)
