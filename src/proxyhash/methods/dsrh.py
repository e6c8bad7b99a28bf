"""DSRH: ranking by the number of shared tags (Zhao, Huang, Wang and Tan 2015)."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from proxyhash.losses import hamming_distances, similarity_levels, triplet_hinge
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace
from proxyhash.methods.registry import register_method


@dataclass(frozen=True)
class DsrhSettings(MethodSettings):
    """Settings of DSRH.

    They are the margin as a fraction of the code and the weight of the balance of bits; `samples_per_class` is ours.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"margin": 0.125},
        {"margin": 0.25},
        {"margin": 0.125, "samples_per_class": 8},
    )

    margin: float = 0.125  # rho; ours, better on held-out digits than a quarter
    balance: float = 1.0  # alpha, of a mean over bits
    samples_per_class: int = 4


@register_method("dsrh", title="DSRH", family="ranking", year=2015, settings=DsrhSettings)
class Dsrh(HashingMethod):
    """Deep semantic ranking based hashing, Zhao et al. 2015.

    The loss is the mean of (2^r_i - 2^r_j) max(0, d(q, i) - d(q, j) + rho) where r_i > r_j, plus alpha / 2 times the
    mean over bits of (mean nu_k)^2, nu (N, K).

    r is the number of tags that an image shares with the query; for classes it is 1 or 0. The authors' Z, the best gain
    of a ranking, is here the sum of the weights; their beta / 2 ||W||^2 is the optimizer's weight decay. No code of the
    authors was found to check against.
    """

    settings: DsrhSettings

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        margin = self.settings.margin * embeddings.shape[1]
        ranking = triplet_hinge(hamming_distances(embeddings, embeddings), similarity_levels(targets, graded=True), margin)
        return ranking + self.settings.balance / 2 * embeddings.mean(0).square().mean()
