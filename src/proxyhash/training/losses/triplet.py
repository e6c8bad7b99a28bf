"""The triplet loss in Hamming space over all triplets of a batch, in memory that does not grow with their number."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from proxyhash.training.losses.products import inner_products
from proxyhash.training.losses.similar import similar_pairs
from proxyhash.utils.errors import InputError

_TRIPLETS_AT_ONCE = 1 << 18  # 1 MB in single precision: the few arrays of that size stay in a core's cache


def hamming_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """Return d_H = (d - nu_i . nu_j) / 2 (A, N) in bits, section 4.4, for `rows` (A, d) and `columns` (N, d).

    For saturated embeddings, all entries +1 or -1, it is the Hamming distance of their codes.
    """
    return (rows.shape[-1] - inner_products(rows, columns)) / 2


def margin_in_bits(margin: float, bits: int) -> float:
    """Return the margin of the triplet loss in bits: it is given so, or below 1 as a share of the code; 0 is a sixteenth.

    Little is better: on held-out images of CIFAR-100 and of Corel-5K a 32nd to an 8th of the code beat a quarter. On classes
    that were not learned an 8th did, and a quarter beside sHCLM.
    """
    return margin if margin >= 1 else (margin or 0.0625) * bits


def hamming_triplet(nu: Tensor, labels: Tensor, margin: float) -> Tensor:
    """Return L_t, see `hamming_triplet_between`, over all triplets within `nu` (N, d), of classes (N,) or tags (N, T)."""
    return hamming_triplet_between(nu, nu, similar_pairs(labels), margin)


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

    x is one of `anchors` (A, d); x+ and x- are the similar and dissimilar ones among `others` (N, d), by `similar` (A, N)
    bool; m is the `margin` in bits. Anchor i is others[offset + i] and is never paired with itself: with several processes
    the anchors are this one's images, the others everyone's. An `offset` of None says that no anchor is among the others.
    The paper does not say which triplets it samples; here none is left out. Without any the loss is 0, and so is its
    gradient.
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
    """Mean of softplus(margin + D[a, p] - D[a, n]); works out the gradient by D (A, N) along with the value.

    Left to autograd, the graph would hold every triplet until the backward pass. Here a few pairs (a, p) at a time meet
    all n, and only their sums are kept.
    """

    @staticmethod
    def forward(ctx: Any, distances: Tensor, positive: Tensor, negative: Tensor, margin: float, at_once: int) -> Tensor:
        triplets = (positive.sum(dim=1) * negative.sum(dim=1)).sum().clamp(min=1)
        far = distances.masked_fill(~negative, torch.inf)  # what is no negative is infinitely far: softplus(-inf) = 0
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
