"""The embedding of section 3: pixels to features q(x), to nu(x) = tanh(L'q(x) + b)."""

import torch
from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone
from proxyhash.models.heads import HashHead, Head, HeadConfig

__all__ = ["HashHead", "HashNetwork", "HeadConfig", "NormalizedBackbone"]


class NormalizedBackbone(nn.Module):
    """A backbone that takes pixels (N, 3, H, W) from 0 to 255: the normalization travels with the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(backbone.config.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(backbone.config.std).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return features q (N, width)."""
        features: Tensor = self.backbone((pixels - self.mean) / self.std)
        return features


class HashNetwork(nn.Module):
    """Backbone and head: pixels (N, 3, H, W) from 0 to 255 to nu (N, bits), or whatever the head puts out."""

    head: Head

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.features = NormalizedBackbone(backbone)
        self.head = head

    def forward(self, pixels: Tensor) -> Tensor:
        """Return nu."""
        nu: Tensor = self.head(self.features(pixels))
        return nu
