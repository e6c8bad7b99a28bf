"""Soft histograms of the distances within a batch, and what MI-Hash and TALR-AP compute from them."""

import torch
from torch import Tensor

from proxyhash.losses.pairwise import batch_pairs, hamming_distances


def soft_histograms(distances: Tensor, mask: Tensor, bits: int, bins: int | None = None) -> Tensor:
    """Return histograms of distances with triangular weights.

    With a bin for each number of bits, a distance of 2.3 counts 0.7 at 2 and 0.3 at 3. Whole distances, those of saturated
    embeddings, are counted exactly then.

    Parameters
    ----------
    distances
        (A, N), in bits.
    mask
        (A, N) bool: which of them are counted.
    bits
        The length of codes.
    bins
        B: the centers of the bins are 0, bits / B, 2 bits / B, ..., bits; None: B = bits.

    Returns
    -------
    Tensor
        Counts (A, B + 1).

    Examples
    --------
    >>> soft_histograms(torch.tensor([[2.25, 0.0]]), torch.tensor([[True, True]]), 3)
    tensor([[1.0000, 0.0000, 0.7500, 0.2500]])
    """
    count = bits if bins is None else bins
    near = (distances if count == bits else distances * (count / bits)).clamp(0, count)
    below = near.detach().floor().clamp(max=count - 1).long()
    fraction = near - below
    empty = torch.zeros(len(near), count + 1, dtype=near.dtype, device=near.device)
    return empty.scatter_add(1, below, mask * (1 - fraction)).scatter_add(1, below + 1, mask * fraction)


def batch_histograms(embeddings: Tensor, targets: Tensor, bins: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the histograms of each image's distances to similar images, and to dissimilar ones.

    Parameters
    ----------
    embeddings
        (N, bits).
    targets
        Classes (N,), or tags (N, T) of 0 and 1.
    bins
        B, see `soft_histograms`; None: a bin for each number of bits.

    Returns
    -------
    similar, dissimilar : Tensor
        Both (N, B + 1).

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
    return soft_histograms(distances, similar, bits, bins), soft_histograms(distances, dissimilar, bits, bins)


def mutual_information(similar: Tensor, dissimilar: Tensor) -> Tensor:
    """Return the mutual information H(D) - H(D | C) of distances D and similarity C, in nats.

    Parameters
    ----------
    similar, dissimilar
        Histograms (N, bins) of the distances to similar images and to dissimilar ones.

    Returns
    -------
    Tensor
        (N,).

    Examples
    --------
    >>> mutual_information(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]]))  # the distance tells all: log 2
    tensor([0.6931])
    """
    total = (similar.sum(1) + dissimilar.sum(1)).clamp(min=1e-12)
    within = (similar.sum(1) * _entropy(similar) + dissimilar.sum(1) * _entropy(dissimilar)) / total
    return _entropy(similar + dissimilar) - within


def _entropy(histogram: Tensor) -> Tensor:
    probabilities = histogram / histogram.sum(1, keepdim=True).clamp(min=1e-12)
    return -(probabilities * probabilities.clamp(min=1e-12).log()).sum(1)


def relaxed_average_precision(similar: Tensor, dissimilar: Tensor) -> Tensor:
    """Return AP_r = sum_d c+_d (C+_{d-1} + C+_d + 1) / (C_{d-1} + C_d + 1) / N+.

    c counts all items at a distance, c+ similar ones, C and C+ are their cumulative sums. Of the exact tie-aware AP it takes
    numerator and denominator each at the middle of a tie: exact for ties of one item, or of similar items only at the top.

    Parameters
    ----------
    similar, dissimilar
        Histograms (N, bins) of the distances to similar images and to dissimilar ones.

    Returns
    -------
    Tensor
        (N,).

    Examples
    --------
    >>> relaxed_average_precision(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))  # found at rank 2
    tensor([0.5000])
    """
    counts = similar + dissimilar
    ends, hits = counts.cumsum(1), similar.cumsum(1)
    precision = (2 * hits - similar + 1) / (2 * ends - counts + 1)
    return (similar * precision).sum(1) / similar.sum(1).clamp(min=1e-12)
