"""The embedding of section 3: pixels to features q(x), to nu(x) = tanh(L'q(x) + b)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from proxyhash.models.backbones.backbone import Backbone


@dataclass(frozen=True)
class HeadShape:
    """What stands between features and code.

    A hidden layer lets frozen features reach corners that no linear map of them reaches; a network that is trained end to
    end bends its own features and needs none.
    """

    width: int
    bits: int
    hidden: int = 0  # 0: the paper's head, one linear layer
    dropout: float = 0.0  # before the last layer


class HashHead(nn.Module):
    """nu = tanh(L'q + b), for features q (N, width), with a hidden layer in between if its shape says so."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        layers: list[nn.Module] = []
        if shape.hidden:
            # Batch normalisation makes one learning rate fit the features of every backbone.
            layers += [nn.Linear(shape.width, shape.hidden, bias=False), nn.BatchNorm1d(shape.hidden), nn.ReLU(inplace=True)]
        if shape.dropout:
            layers.append(nn.Dropout(shape.dropout))
        layers.append(nn.Linear(shape.hidden or shape.width, shape.bits))
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Return nu (N, bits), from -1 to 1."""
        return torch.tanh(self.layers(features))


class Normalised(nn.Module):
    """A backbone that takes pixels (N, 3, H, W) from 0 to 255: the normalisation travels with the network."""

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("mean", torch.tensor(backbone.facts.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(backbone.facts.std).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return features q (N, width)."""
        features: Tensor = self.backbone((pixels - self.mean) / self.std)
        return features


class HashNetwork(nn.Module):
    """Backbone and head: pixels (N, 3, H, W) from 0 to 255 to nu (N, bits)."""

    def __init__(self, backbone: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.features = Normalised(backbone)
        self.head = head

    def forward(self, pixels: Tensor) -> Tensor:
        """Return nu."""
        nu: Tensor = self.head(self.features(pixels))
        return nu
