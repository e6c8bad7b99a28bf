"""The paper's head, and the same without its tanh."""

import torch
from torch import Tensor, nn

from proxyhash.models.heads.base import Head, HeadShape, layers_before
from proxyhash.models.heads.registry import PLAIN, head_kind


@head_kind("linear")
class LinearHead(Head):
    """u = L'q + b, not bounded: for losses that press on the pre-activations themselves, or squash them in their own way."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__(shape)
        layers, width = layers_before(shape)
        self.layers = nn.Sequential(*layers, nn.Linear(width, shape.bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return u (N, bits)."""
        u: Tensor = self.layers(features)
        return u


@head_kind(PLAIN)
class HashHead(LinearHead):
    """nu = tanh(L'q + b), for features q (N, width), with a hidden layer in between if its shape says so."""

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        return torch.tanh(self.layers(features))
