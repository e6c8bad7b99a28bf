"""Distances of embeddings from the codes that they are rounded to."""

import torch
from torch import Tensor

from proxyhash.utils.errors import InputError


def quantization_loss(embeddings: Tensor) -> Tensor:
    """Return the mean over images and bits of (nu - sign(nu))^2, sign(0) = +1.

    Parameters
    ----------
    embeddings
        nu (N, bits).

    Returns
    -------
    Tensor
        A scalar.

    Examples
    --------
    >>> quantization_loss(torch.tensor([[0.5, -1.0]]))
    tensor(0.1250)
    """
    signs = torch.where(embeddings >= 0, 1.0, -1.0)
    return (embeddings - signs).square().mean()


def binarization_error(embeddings: Tensor) -> Tensor:
    """Return the binarization error of each image, the mean over bits of (|nu_k| - 1)^2 = (nu_k - sign(nu_k))^2.

    0 is saturated, 1 undecided. The paper shows histograms of it (section 5.2); its method never minimizes it.

    Parameters
    ----------
    embeddings
        nu (N, bits).

    Returns
    -------
    Tensor
        (N,).

    Raises
    ------
    InputError
        If the embeddings are not a matrix.

    Examples
    --------
    >>> binarization_error(torch.tensor([[0.5, -1.0], [0.0, 0.0]]))
    tensor([0.1250, 1.0000])
    """
    if embeddings.ndim != 2 or embeddings.shape[1] == 0:
        raise InputError(f"Embeddings must be a matrix (images, bits), not of shape {tuple(embeddings.shape)}.")
    return (embeddings.abs() - 1).square().mean(dim=1)
