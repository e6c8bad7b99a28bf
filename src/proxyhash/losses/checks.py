"""Checks of the embeddings and labels that losses are called with."""

import torch
from torch import Tensor

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import shorten


def check_embeddings(embeddings: Tensor) -> Tensor:
    """Return `embeddings` (N, bits) in single precision or better; anything else is an error.

    Examples
    --------
    >>> check_embeddings(torch.zeros(2, 8, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    if not isinstance(embeddings, Tensor) or embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise InputError(f"Embeddings must be a tensor of real numbers (images, bits), not {_describe(embeddings)}.")
    return embeddings.to(torch.promote_types(embeddings.dtype, torch.float32))


def check_classes(labels: Tensor, embeddings: Tensor, classes: int | None = None) -> None:
    """Raise unless `labels` (N,) are integers, one for each row of `embeddings` (N, d).

    With `classes` they must lie in 0 to classes - 1. This is checked on a CPU only: on a GPU the check would wait for the
    results of all earlier operations.

    Examples
    --------
    >>> check_classes(torch.tensor([0, 3]), torch.zeros(2, 8), classes=3)
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: Labels must be class numbers from 0 to 2, not 3.
    """
    if (
        not isinstance(labels, Tensor)
        or labels.shape != embeddings.shape[:1]
        or labels.is_floating_point()
        or labels.dtype == torch.bool
    ):
        raise InputError(f"Labels must be one class number for each of {len(embeddings)} images, not {_describe(labels)}.")
    if classes is not None and labels.device.type == "cpu":
        outside = labels[(labels < 0) | (labels >= classes)]
        if len(outside):
            raise InputError(f"Labels must be class numbers from 0 to {classes - 1}, not {int(outside[0])}.")


def check_labels(labels: Tensor, embeddings: Tensor) -> None:
    """Raise unless `labels` are classes (N,) or tags (N, T), one for each row of `embeddings` (N, d).

    Examples
    --------
    >>> check_labels(torch.zeros(2, 5), torch.zeros(2, 8))
    """
    if isinstance(labels, Tensor) and labels.ndim == 2 and len(labels) == len(embeddings):
        return
    check_classes(labels, embeddings)


def _describe(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return shorten(value)
