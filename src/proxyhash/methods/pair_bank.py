"""Pairs of a batch with all training images, at the embeddings that these had last."""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from proxyhash.labels import Labels
from proxyhash.losses import PairwiseLoss, inner_products, pair_nll, similar_pairs

_PAIRS_AT_ONCE = 1 << 20  # 4 MB in single precision: temporary arrays do not grow with the training images


class PairBank(nn.Module):
    """Likelihood of the pairs of a batch with all n training images, as DPSH and DSDH have it.

    The bank holds the embedding that each image had when it was last in a batch, and zero before. A batch enters its
    embeddings u (N, K) first. The gradient is that of -(1 / n^2) sum_ij [s theta - log(1 + e^theta)], theta = u_i.u_j / 2,
    over all ordered pairs of training images, by u of the batch, times n / N: (1 / nN) sum_j (sigmoid(theta_ij) - s_ij) u_j.
    Pairs with images outside the batch count twice in the value, as both orders do in that sum.

    Embeddings in the bank are up to an epoch old. With the optimizer of this package the network moves far in that time: a
    common part of all embeddings is corrected too late and oscillates, and codes retrieve worse than those of ITQ. With the
    small steps of the authors it does not.

    Parameters
    ----------
    labels
        Classes or tags of the training images.
    bits
        The length of codes.
    """

    embeddings: Tensor

    def __init__(self, labels: Labels, bits: int) -> None:
        super().__init__()
        self.register_buffer("embeddings", torch.zeros(len(labels), bits))
        self._targets = torch.tensor(labels.targets())  # not a buffer: checkpoints need not repeat the data

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Enter a batch, and return its loss."""
        self._targets = self._targets.to(embeddings.device)  # once, so that no step waits for a copy
        self.embeddings[indices] = embeddings.detach().to(self.embeddings.dtype)
        loss: Tensor = _PairsWithBank.apply(  # type: ignore[no-untyped-call]
            embeddings, targets, self.embeddings, self._targets, _PAIRS_AT_ONCE
        )
        return loss


class BatchPairs(PairwiseLoss):
    """Likelihood of the pairs of a batch alone, called like a `PairBank`; an image is not paired with itself."""

    def forward(self, embeddings: Tensor, labels: Tensor, indices: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return super().forward(embeddings, labels)


def pair_loss(pairs: Literal["batch", "all"], labels: Labels, bits: int) -> PairBank | BatchPairs:
    """Return the loss of the pairs of a batch, or with all training images."""
    return BatchPairs() if pairs == "batch" else PairBank(labels, bits)


class _PairsWithBank(torch.autograd.Function):
    """Loss of a `PairBank`, with the gradient computed along with the value: no array has all pairs of a step."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, targets: Tensor, bank: Tensor, bank_targets: Tensor, at_once: int) -> Tensor:
        total, gradient = rows.new_zeros(()), torch.zeros_like(rows)
        size = max(1, at_once // max(1, len(rows)))
        for first in range(0, len(bank), size):
            others = bank[first : first + size].to(rows)
            theta = inner_products(rows, others) / 2
            similar = similar_pairs(targets, bank_targets[first : first + size])
            total += 2 * pair_nll(theta, similar).sum()
            gradient += (theta.sigmoid() - similar.to(theta)) @ others
        total -= pair_nll(inner_products(rows, rows) / 2, similar_pairs(targets)).sum()
        count = max(1, len(rows) * len(bank))
        ctx.save_for_backward(gradient / count)
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None, None, None
