"""Soft histograms of the distances of a batch, what MI-Hash and TALR-AP are functions of."""

import torch
from torch import Tensor

from proxyhash.methods.deep.pairs import pairs_of_a_batch
from proxyhash.training.losses import hamming_distances


def soft_histograms(distances: Tensor, chosen: Tensor, bits: int) -> Tensor:
    """Return (A, bits + 1): how many of the `chosen` distances (A, N) lie at 0, 1, ... bits, by triangular weights.

    A distance of 2.3 counts 0.7 at 2 and 0.3 at 3. Whole distances, those of saturated embeddings, are counted exactly.
    """
    near = distances.clamp(0, bits)
    below = near.detach().floor().clamp(max=bits - 1).long()
    share = near - below
    empty = torch.zeros(len(near), bits + 1, dtype=near.dtype, device=near.device)
    return empty.scatter_add(1, below, chosen * (1 - share)).scatter_add(1, below + 1, chosen * share)


def batch_histograms(nu: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the histograms (N, bits + 1) of each image's distances to similar images, and to dissimilar ones."""
    distances = hamming_distances(nu, nu)
    similar, dissimilar = pairs_of_a_batch(targets)
    return soft_histograms(distances, similar, nu.shape[1]), soft_histograms(distances, dissimilar, nu.shape[1])
