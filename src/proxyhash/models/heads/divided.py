"""The divide-and-encode head of NINH (Lai, Pan, Liu and Yan 2015): every bit reads its own slice of the features."""

import torch
from torch import Tensor, nn

from proxyhash.models.heads.base import Head, HeadConfig, hidden_layers
from proxyhash.models.heads.registry import register_head

SLICE = 50  # units that a bit reads, at least: the authors'
SATURATED = 0.4  # epsilon: a sigmoid farther than this from 1/2 counts as 0 or 1


@register_head("divided")
class DividedHead(Head):
    """nu_k = 2 g(sigmoid(w_k' h_k + b_k)) - 1, where h_k is the k-th slice of the hidden units, for features (N, width).

    g(s) is 0 below 1/2 - epsilon, 1 above 1/2 + epsilon, and s in between. Where it is flat the gradient is that of s
    (ours): a bit that has saturated on the wrong side could not be taught otherwise.
    """

    def __init__(self, shape: HeadConfig) -> None:
        super().__init__(shape)
        each = max(SLICE, shape.hidden_dim // shape.bits)
        layers, width = hidden_layers(shape, each * shape.bits)
        self.layers = nn.Sequential(*layers)
        self.slices = nn.Parameter(torch.randn(shape.bits, width // shape.bits) / each**0.5)
        self.bias = nn.Parameter(torch.zeros(shape.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        sliced = self.layers(features).unflatten(1, self.slices.shape)
        soft = torch.sigmoid((sliced * self.slices).sum(2) + self.bias)
        hard = torch.where((soft - 0.5).abs() > SATURATED, soft.round(), soft)
        return 2 * (soft + (hard - soft).detach()) - 1
