"""What methods on pairs of a batch share: which pairs there are, and how likely they are."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from proxyhash.training.losses import similar_pairs


def pair_losses(theta: Tensor, similar: Tensor) -> Tensor:
    """Return -log P(s | theta) = log(1 + e^theta) - s theta (A, N), of `similar` pairs (A, N) and their logits."""
    return softplus(theta) - similar * theta


def pairs_of_a_batch(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return which pairs are similar and which are not, both (N, N) bool; an image is no pair with itself."""
    similar = similar_pairs(targets)
    itself = torch.eye(len(similar), dtype=torch.bool, device=similar.device)
    return similar & ~itself, ~similar & ~itself


def mean_over(values: Tensor, chosen: Tensor) -> Tensor:
    """Return the mean of the chosen values, 0 if there are none."""
    return (values * chosen).sum() / chosen.sum().clamp(min=1)
