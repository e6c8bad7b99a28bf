"""Networks from pixels to features q(x) and embeddings nu(x)."""

import torch
from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone, BackboneConfig
from proxyhash.models.heads import HashHead, Head, HeadConfig

__all__ = ["HashHead", "HashNetwork", "HeadConfig", "NetworkWithFeatures", "NormalizedBackbone"]


class Normalization(nn.Module):
    """The normalization of a backbone's input."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(config.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(config.std).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return normalized pixels (N, 3, H, W) of those from 0 to 255."""
        return (pixels - self.mean) / self.std


class NormalizedBackbone(Normalization):
    """Backbone with its normalization, for pixels (N, 3, H, W) from 0 to 255."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone.config)
        self.backbone = backbone

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the features q (N, num_features)."""
        features: Tensor = self.backbone(super().forward(pixels))
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


class NetworkWithFeatures(nn.Module):
    """A network with two outputs of one pass: nu (N, bits) and the features q (N, num_features)."""

    def __init__(self, network: HashNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Return nu and q."""
        features = self.network.features(pixels)
        return self.network.head(features), features
