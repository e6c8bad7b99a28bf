"""The inner products that every loss is made of, and the checks of what goes into them."""

import torch
from torch import Tensor

from proxyhash.utils.errors import InputError


def inner_products(rows: Tensor, columns: Tensor) -> Tensor:
    """Return rows_i . columns_j (A, N) for `rows` (A, d) and `columns` (N, d), in single precision or better.

    Autocast does not reach this product: bfloat16 keeps 8 significant bits, so values near 100 would come in steps of 1/2.
    """
    if rows.ndim != 2 or columns.ndim != 2 or rows.shape[1] != columns.shape[1]:
        raise InputError(f"Matrices (items, bits) of equal bits are needed, not {_shape(rows)} and {_shape(columns)}.")
    precision = torch.promote_types(rows.dtype, torch.float32)
    with torch.autocast(rows.device.type, enabled=False):
        return rows.to(precision) @ columns.to(precision).T


def proxy_scores(nu: Tensor, proxies: Tensor, tau: float) -> Tensor:
    """Return the logits (tau / d) w_k . nu(x_i), (N, C), of embeddings `nu` (N, d) and `proxies` (C, d) of norm sqrt(d).

    They lie in [-tau, tau]. The paper's letter is tau = d, at which the softmax is certain, and stops pushing, long before
    the embedding saturates; around 8 to 15 it has to reach the corner.
    """
    if not tau > 0:
        raise InputError(f"tau must be above 0, not {tau}.")
    return inner_products(nu, proxies) * (tau / nu.shape[1])


def check_classes(labels: Tensor, nu: Tensor) -> None:
    """Raise unless `labels` (N,) are whole numbers, one for each row of `nu` (N, d)."""
    if labels.shape != nu.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise InputError(
            f"Labels must be one class number for each of {len(nu)} images, not {labels.dtype} of shape {_shape(labels)}."
        )


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)
