"""A hinge over triplets of a batch whose first two images are more alike than the first and the third."""

import torch
from torch import Tensor

from proxyhash.training.losses import similar_pairs

MOST_PAIRS = 8192  # of an image and a similar one that a batch is asked for: tagged images have many more, and they repeat


def similarity_levels(targets: Tensor, *, graded: bool = False) -> Tensor:
    """Return how alike the images of a batch are, (N, N): 1 or 0, or, `graded`, how many tags they share; -1 for itself."""
    levels = similar_pairs(targets).long()
    if graded and targets.ndim == 2:
        levels = (targets @ targets.T).long()
    return levels.fill_diagonal_(-1)


def triplet_hinge(distances: Tensor, levels: Tensor, margin: float) -> Tensor:
    """Return the weighted mean of max(0, m + D[a, p] - D[a, n]) over triplets with levels r_p > r_n >= 0; 0 without any.

    `distances` and `levels` are (N, N). The weight is 2^r_p - 2^r_n: always 1 if images are similar or not, and nothing
    else.
    """
    anchors, nears = (levels > 0).nonzero(as_tuple=True)
    if len(anchors) > MOST_PAIRS:
        drawn = torch.randperm(len(anchors), device=anchors.device)[:MOST_PAIRS]
        anchors, nears = anchors[drawn], nears[drawn]
    gains = torch.where(levels >= 0, 2.0 ** levels.clamp(max=16), torch.inf)  # no triplet has an image twice
    weights = (gains[anchors, nears][:, None] - gains[anchors]).clamp(min=0).to(distances.dtype)
    hinges = (margin + distances[anchors, nears][:, None] - distances[anchors]).clamp(min=0)
    return (weights * hinges).sum() / weights.sum().clamp(min=1)
