"""Pairs of a batch: inner products, Hamming distances, similarity, and the likelihood of pairs."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from proxyhash.utils.errors import InputError


def inner_products(rows: Tensor, columns: Tensor) -> Tensor:
    """Return all inner products of two sets of vectors, in single precision or better.

    Autocast is switched off for this product: bfloat16 keeps 8 significant bits, so values near 100 would be rounded to
    steps of 0.5.

    Parameters
    ----------
    rows
        Vectors (A, d).
    columns
        Vectors (N, d).

    Returns
    -------
    Tensor
        rows_i . columns_j, (A, N).

    Raises
    ------
    InputError
        If the vectors differ in length.

    Examples
    --------
    >>> inner_products(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor([[11.,  2.]])
    """
    if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != columns.shape[1]:
        raise InputError(
            f"Matrices (items, bits) of equal bits are needed, not {tuple(rows.shape)} and {tuple(columns.shape)}."
        )
    precision = torch.promote_types(rows.dtype, torch.float32)
    with torch.autocast(rows.device.type, enabled=False):
        return rows.to(precision) @ columns.to(precision).T


def hamming_distances(rows: Tensor, columns: Tensor) -> Tensor:
    """Return the relaxed Hamming distance d_H = (d - nu_i . nu_j) / 2 in bits, section 4.4.

    For saturated embeddings, all entries +1 or -1, it is the Hamming distance of their codes.

    Parameters
    ----------
    rows
        Embeddings (A, d).
    columns
        Embeddings (N, d).

    Returns
    -------
    Tensor
        Distances (A, N).

    Examples
    --------
    >>> hamming_distances(torch.tensor([[1.0, -1.0]]), torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
    tensor([[1., 2.]])
    """
    return (rows.shape[-1] - inner_products(rows, columns)) / 2


def similar_pairs(labels: Tensor, other_labels: Tensor | None = None) -> Tensor:
    """Return which pairs of images are similar: those of one class, or those that share at least one tag.

    Parameters
    ----------
    labels
        Classes (A,), or tags (A, T) of 0 and 1.
    other_labels
        The other side, (N,) or (N, T); by default `labels` themselves.

    Returns
    -------
    Tensor
        (A, N) bool. An image without tags is similar to none, itself included.

    Raises
    ------
    InputError
        If one side has classes and the other has tags, or the numbers of tags differ.

    Examples
    --------
    >>> similar_pairs(torch.tensor([0, 1, 0]))
    tensor([[ True, False,  True],
            [False,  True, False],
            [ True, False,  True]])
    """
    others = labels if other_labels is None else other_labels
    if labels.ndim not in (1, 2) or labels.shape[1:] != others.shape[1:]:
        raise InputError(
            "Labels must be class numbers (images,) or tags (images, tags) on both sides, "
            f"not of shapes {tuple(labels.shape)} and {tuple(others.shape)}."
        )
    if labels.ndim == 1:
        return labels[:, None] == others
    with torch.autocast(labels.device.type, enabled=False):
        return labels.float() @ others.float().T > 0


def batch_pairs(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the similar and the dissimilar pairs of a batch; an image is not paired with itself.

    Parameters
    ----------
    targets
        Classes (N,), or tags (N, T) of 0 and 1.

    Returns
    -------
    similar, dissimilar : Tensor
        Both (N, N) bool, with a diagonal of False.

    Examples
    --------
    >>> similar, dissimilar = batch_pairs(torch.tensor([0, 0, 1]))
    >>> int(similar.sum()), int(dissimilar.sum())
    (2, 4)
    """
    similar = similar_pairs(targets)
    itself = torch.eye(len(similar), dtype=torch.bool, device=similar.device)
    return similar & ~itself, ~similar & ~itself


def pair_nll(theta: Tensor, similar: Tensor) -> Tensor:
    """Return the negative log likelihood of pairs, -log P(s | theta) = log(1 + e^theta) - s theta.

    Parameters
    ----------
    theta
        Logits of the pairs (A, N).
    similar
        s, which pairs are similar (A, N).

    Returns
    -------
    Tensor
        (A, N).

    Examples
    --------
    >>> pair_nll(torch.zeros(1, 2), torch.tensor([[True, False]]))
    tensor([[0.6931, 0.6931]])
    """
    return softplus(theta) - similar * theta


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of the values where the mask is True, 0 if it is nowhere.

    Parameters
    ----------
    values
        Any shape.
    mask
        Bool of the same shape.

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> masked_mean(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([True, True, False]))
    tensor(3.)
    """
    return (values * mask).sum() / mask.sum().clamp(min=1)
