"""Head of kernel methods: signs of a linear map of RBF kernels with anchors."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from proxyhash.models.heads.base import Head, HeadConfig, register_head


@register_head("kernel")
class KernelHead(Head):
    """u = P'(phi(q) - m), phi_j(q) = exp(-||q - a_j||^2 / (2 s)), as KSH and SDH have it.

    `anchors` a (m, in_features), `bandwidth` s (1,), `mean` m (m,) and `projection` P (m, bits); `hidden_dim` is the number
    m of anchors.

    Examples
    --------
    >>> KernelHead(HeadConfig(4, bits=8, hidden_dim=10))(torch.zeros(3, 4)).shape
    torch.Size([3, 8])
    """

    anchors: Tensor
    bandwidth: Tensor
    mean: Tensor
    projection: Tensor

    def __init__(self, config: HeadConfig) -> None:
        super().__init__(config)
        self.register_buffer("anchors", torch.zeros(config.hidden_dim, config.in_features))
        self.register_buffer("bandwidth", torch.ones(1))
        self.register_buffer("mean", torch.zeros(config.hidden_dim))
        self.register_buffer("projection", torch.zeros(config.hidden_dim, config.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return u (N, bits)."""
        squares = features.square().sum(1, keepdim=True) + self.anchors.square().sum(1) - 2 * features @ self.anchors.T
        kernel = torch.exp(squares.clamp_min(0) * (-0.5 / self.bandwidth))
        return (kernel - self.mean) @ self.projection


@register_head("unit-kernel")
class UnitKernelHead(KernelHead):
    """A `KernelHead` of q / ||q||, as SDH has it."""

    def forward(self, features: Tensor) -> Tensor:
        """Return u (N, bits)."""
        return super().forward(normalize(features))
