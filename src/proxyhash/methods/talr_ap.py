"""TALR-AP: relaxed tie-aware average precision (He, Cakir, Bargal and Sclaroff 2018)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import batch_histograms, masked_mean
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class TalrApSettings(MethodSettings):
    """Settings of TALR-AP; `samples_per_class` is ours."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"samples_per_class": 4}, {"samples_per_class": 8}, {"samples_per_class": 16})

    samples_per_class: int = 8


@register_method("talr-ap", title="TALR-AP", family="ranking", year=2018, settings=TalrApSettings)
class TalrAp(HashingMethod):
    """TALR-AP, He et al. 2018.

    The loss is 1 minus the mean of AP_r over the images of a batch as queries, on the soft histograms of MI-Hash (N, K
    + 1).
    """

    settings: TalrApSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch; a query without similar images does not count."""
        similar, dissimilar = batch_histograms(embeddings, targets)
        return 1 - masked_mean(relaxed_average_precision(similar, dissimilar), similar.sum(1) > 0)


def relaxed_average_precision(similar: Tensor, dissimilar: Tensor) -> Tensor:
    """Return AP_r = sum_d c+_d (C+_{d-1} + C+_d + 1) / (C_{d-1} + C_d + 1) / N+ (N,), from histograms (N, bins).

    c counts all items at a distance, c+ similar ones, C and C+ are their cumulative sums. Of the exact tie-aware AP it takes
    numerator and denominator each at the middle of a tie: exact for ties of one item, or of similar items only at the top.
    """
    counts = similar + dissimilar
    ends, hits = counts.cumsum(1), similar.cumsum(1)
    precision = (2 * hits - similar + 1) / (2 * ends - counts + 1)
    return (similar * precision).sum(1) / similar.sum(1).clamp(min=1e-12)
