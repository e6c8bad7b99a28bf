"""Triplet losses over all triplets of a batch."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from proxyhash.losses.pairwise import hamming_distances, inner_products, similar_pairs
from proxyhash.utils.errors import InputError

DEFAULT_MARGIN = 0.0625  # as a fraction of the code
MAX_PAIRS = 8192  # of an anchor and a similar image in `triplet_hinge`: batches of tagged images have many more
_TRIPLETS_AT_ONCE = 1 << 18  # 1 MB in single precision: the few arrays of that size stay in a core's cache


def margin_in_bits(margin: float | None, bits: int) -> float:
    """Return the margin of the triplet loss in bits.

    On held-out images of CIFAR-100 and of Corel-5K a margin of 1/32 to 1/8 of the code was better than 1/4. On unseen
    classes 1/8 was best, and 1/4 beside sHCLM.

    Parameters
    ----------
    margin
        In bits from 1 upwards, below 1 as a fraction of the code; None: 1/16 of the code.
    bits
        The length of codes.

    Returns
    -------
    float
        In bits.

    Examples
    --------
    >>> margin_in_bits(None, 32), margin_in_bits(0.25, 32), margin_in_bits(3.0, 32)
    (2.0, 8.0, 3.0)
    """
    fraction = DEFAULT_MARGIN if margin is None else margin
    return fraction if fraction >= 1 else fraction * bits


def hamming_triplet(embeddings: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return the triplet loss L_t over all triplets within a batch, see `hamming_triplet_between`.

    Parameters
    ----------
    embeddings
        nu (N, d).
    labels
        Classes (N,), or tags (N, T) of 0 and 1.
    margin
        In bits.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> embeddings = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]])
    >>> hamming_triplet(embeddings, torch.tensor([0, 0, 1]), margin=1.0)
    tensor(0.3133)
    """
    return hamming_triplet_between(embeddings, embeddings, similar_pairs(labels), margin)


def hamming_triplet_between(
    anchors: Tensor,
    others: Tensor,
    similar: Tensor,
    margin: float,
    offset: int | None = 0,
    *,
    triplets_at_once: int = _TRIPLETS_AT_ONCE,
) -> Tensor:
    """Return the mean over all triplets of L_t(x, x+, x-) = log(1 + exp(m + d_H(x, x+) - d_H(x, x-))), section 4.4.

    The paper does not say which triplets it samples; here none is left out. Without any the loss is 0, and so is its
    gradient. Memory does not grow with the number of triplets.

    Parameters
    ----------
    anchors
        x (A, d).
    others
        (N, d), of which x+ are the similar and x- the dissimilar ones.
    similar
        (A, N) bool.
    margin
        m, in bits.
    offset
        Anchor i is others[offset + i] and is not paired with itself: with several processes the anchors are the images of
        one process, the others those of all. None: no anchor is among the others.
    triplets_at_once
        The size of temporary arrays.

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    InputError
        If the shapes do not match, or the anchors do not lie within the others.

    Examples
    --------
    >>> others = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> similar = torch.tensor([[True, False]])
    >>> hamming_triplet_between(torch.tensor([[1.0, 1.0]]), others, similar, margin=2.0, offset=None)
    tensor(0.6931)
    """
    if similar.shape != (len(anchors), len(others)) or similar.dtype != torch.bool:
        raise InputError(
            f"Similarity must be a bool matrix of {len(anchors)} anchors by {len(others)} others, "
            f"not {similar.dtype} of shape {tuple(similar.shape)}."
        )
    positive, negative = similar, ~similar
    if offset is not None:
        itself = _itself(similar, offset)
        positive, negative = similar & ~itself, ~(similar | itself)
    loss: Tensor = _MeanOverTriplets.apply(  # type: ignore[no-untyped-call]
        hamming_distances(anchors, others), positive, negative, margin, triplets_at_once
    )
    return loss


def _itself(similar: Tensor, offset: int) -> Tensor:
    anchors, others = similar.shape
    if not 0 <= offset <= others - anchors:
        raise InputError(f"{anchors} anchors from position {offset} on do not lie within {others} others.")
    return torch.ones_like(similar).triu(offset).tril(offset)


class _MeanOverTriplets(torch.autograd.Function):
    """Mean of softplus(margin + D[a, p] - D[a, n]), with the gradient by D (A, N) computed along with the value.

    Left to autograd, the graph would hold every triplet until the backward pass. Here a few pairs (a, p) at a time are
    combined with all n, and only their sums are kept.
    """

    @staticmethod
    def forward(ctx: Any, distances: Tensor, positive: Tensor, negative: Tensor, margin: float, at_once: int) -> Tensor:
        triplets = (positive.sum(dim=1) * negative.sum(dim=1)).sum().clamp(min=1)
        far = distances.masked_fill(~negative, torch.inf)  # others are infinitely far: softplus(-inf) = 0
        total, gradient = distances.new_zeros(()), torch.zeros_like(distances)
        anchors, nears = positive.nonzero(as_tuple=True)
        size = max(1, at_once // max(1, distances.shape[1]))
        for first in range(0, len(anchors), size):
            anchor, near = anchors[first : first + size], nears[first : first + size]
            excess = (margin + distances[anchor, near])[:, None] - far[anchor]
            total -= logsigmoid(-excess).sum()  # softplus without torch's cut to the identity above 20
            if ctx.needs_input_grad[0]:
                pull = excess.sigmoid_()
                gradient[anchor, near] += pull.sum(dim=1)
                gradient.index_add_(0, anchor, pull, alpha=-1)
        ctx.save_for_backward(gradient / triplets)
        return total / triplets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None, None


def similarity_levels(targets: Tensor, *, graded: bool = False) -> Tensor:
    """Return how similar the images of a batch are.

    Parameters
    ----------
    targets
        Classes (N,), or tags (N, T) of 0 and 1.
    graded
        Count the tags that two images share, instead of 1 for similar images.

    Returns
    -------
    Tensor
        (N, N) integers, with -1 on the diagonal.

    Examples
    --------
    >>> similarity_levels(torch.tensor([0, 0, 1]))
    tensor([[-1,  1,  0],
            [ 1, -1,  0],
            [ 0,  0, -1]])
    """
    levels = similar_pairs(targets).long()
    if graded and targets.ndim == 2:
        levels = inner_products(targets.float(), targets.float()).long()
    return levels.fill_diagonal_(-1)


def triplet_hinge(distances: Tensor, levels: Tensor, margin: float) -> Tensor:
    """Return the weighted mean of max(0, m + D[a, p] - D[a, n]) over triplets with levels r_p > r_n >= 0.

    The weight is 2^r_p - 2^r_n, so it is 1 if images are only similar or dissimilar. Without triplets the loss is 0.
    At most `MAX_PAIRS` pairs (a, p) are used, drawn by torch's generator.

    Parameters
    ----------
    distances
        D (N, N).
    levels
        r (N, N), see `similarity_levels`.
    margin
        m.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> distances = torch.tensor([[0.0, 1.0, 1.5], [1.0, 0.0, 4.0], [1.5, 4.0, 0.0]])
    >>> triplet_hinge(distances, similarity_levels(torch.tensor([0, 0, 1])), margin=1.0)
    tensor(0.2500)
    """
    anchors, nears = (levels > 0).nonzero(as_tuple=True)
    if len(anchors) > MAX_PAIRS:
        drawn = torch.randperm(len(anchors), device=anchors.device)[:MAX_PAIRS]
        anchors, nears = anchors[drawn], nears[drawn]
    gains = torch.where(levels >= 0, 2.0 ** levels.clamp(max=16), torch.inf)  # no triplet has an image twice
    weights = (gains[anchors, nears][:, None] - gains[anchors]).clamp(min=0).to(distances.dtype)
    hinges = (margin + distances[anchors, nears][:, None] - distances[anchors]).clamp(min=0)
    return (weights * hinges).sum() / weights.sum().clamp(min=1)
