"""Quantization loss: the distance of embeddings from their codes."""

from torch import Tensor

from proxyhash.evaluation import binarization_errors


def quantization_loss(embeddings: Tensor) -> Tensor:
    """Return the mean over images and bits of (nu - sign(nu))^2.

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
    >>> import torch
    >>> quantization_loss(torch.tensor([[0.5, -1.0]]))
    tensor(0.1250)
    """
    return binarization_errors(embeddings).mean()
