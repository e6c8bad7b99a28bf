"""The penalty that several methods share: how far an embedding is from its own signs."""

import torch
from torch import Tensor


def quantisation(nu: Tensor) -> Tensor:
    """Return the mean over images and bits of (nu - sign(nu))^2, sign(0) = +1."""
    signs = torch.where(nu >= 0, 1.0, -1.0)
    return (nu - signs).square().mean()
