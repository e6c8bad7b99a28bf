"""Which images of a batch should lie near each other: those of the same class, or those that share a tag."""

import torch
from torch import Tensor

from proxyhash.utils.errors import InputError


def similar_pairs(labels: Tensor, other_labels: Tensor | None = None) -> Tensor:
    """Return which pairs are similar, (A, N) bool, for `labels` (A,) of classes or tags (A, T) of 0 and 1.

    Without `other_labels` (N,) or (N, T), every pair within `labels`. Images of one class are similar; of tagged images,
    those that share at least one tag, as in retrieval. An image without tags is similar to none, itself included.
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
