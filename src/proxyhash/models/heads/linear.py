"""The paper's head, and the same without its tanh."""

import torch
from torch import Tensor, nn

from proxyhash.models.heads.base import Head, HeadConfig, hidden_layers
from proxyhash.models.heads.registry import DEFAULT_HEAD, register_head


@register_head("linear")
class LinearHead(Head):
    """u = L'q + b, not bounded: for losses that press on the pre-activations themselves, or squash them in their own way."""

    def __init__(self, shape: HeadConfig) -> None:
        super().__init__(shape)
        layers, width = hidden_layers(shape)
        self.layers = nn.Sequential(*layers, nn.Linear(width, shape.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return u (N, bits)."""
        u: Tensor = self.layers(features)
        return u


@register_head(DEFAULT_HEAD)
class HashHead(LinearHead):
    """nu = tanh(L'q + b), for features q (N, width), with a hidden layer in between if its shape says so."""

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        return torch.tanh(self.layers(features))
