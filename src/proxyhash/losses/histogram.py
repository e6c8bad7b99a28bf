"""Soft histograms of the distances within a batch, used by MI-Hash and TALR-AP."""

import torch
from torch import Tensor

from proxyhash.losses.pairwise import batch_pairs, hamming_distances


def soft_histograms(distances: Tensor, mask: Tensor, bits: int) -> Tensor:
    """Return histograms of distances with a bin for each number of bits and triangular weights.

    A distance of 2.3 counts 0.7 at 2 and 0.3 at 3. Whole distances, those of saturated embeddings, are counted exactly.

    Parameters
    ----------
    distances
        (A, N), in bits.
    mask
        (A, N) bool: which of them are counted.
    bits
        The length of codes.

    Returns
    -------
    Tensor
        Counts (A, bits + 1).

    Examples
    --------
    >>> soft_histograms(torch.tensor([[2.25, 0.0]]), torch.tensor([[True, True]]), 3)
    tensor([[1.0000, 0.0000, 0.7500, 0.2500]])
    """
    near = distances.clamp(0, bits)
    below = near.detach().floor().clamp(max=bits - 1).long()
    fraction = near - below
    empty = torch.zeros(len(near), bits + 1, dtype=near.dtype, device=near.device)
    return empty.scatter_add(1, below, mask * (1 - fraction)).scatter_add(1, below + 1, mask * fraction)


def batch_histograms(embeddings: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the histograms of each image's distances to similar images, and to dissimilar ones.

    Parameters
    ----------
    embeddings
        (N, bits).
    targets
        Classes (N,), or tags (N, T) of 0 and 1.

    Returns
    -------
    similar, dissimilar : Tensor
        Both (N, bits + 1).

    Examples
    --------
    >>> embeddings = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    >>> similar, dissimilar = batch_histograms(embeddings, torch.tensor([0, 0, 1]))
    >>> similar[0].tolist(), dissimilar[0].tolist()
    ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    """
    distances = hamming_distances(embeddings, embeddings)
    similar, dissimilar = batch_pairs(targets)
    bits = embeddings.shape[1]
    return soft_histograms(distances, similar, bits), soft_histograms(distances, dissimilar, bits)
