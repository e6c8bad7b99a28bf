"""Small convolutional network for demos and tests."""

from pathlib import Path

from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone, BackboneConfig, init_weights, register_backbone
from proxyhash.utils.errors import InputError

GRAY = (127.5,) * 3
CHANNELS = 64


class ConvNet(Backbone):
    """Three convolutions and the mean over each quarter of the image, which keeps some position."""

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__(config)
        self.layers = nn.Sequential(
            *_layer(3, 32, stride=1),
            *_layer(32, CHANNELS, stride=2),
            *_layer(CHANNELS, CHANNELS, stride=2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, 256) of normalized images (N, 3, H, W), best of at most 64 pixels a side."""
        features: Tensor = self.layers(images)
        return features

    def stages(self) -> list[nn.Module]:
        """Return the three convolutions, the last one with the pooling."""
        return [self.layers[:3], self.layers[3:6], self.layers[6:]]


def _layer(inputs: int, outputs: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


@register_backbone("convnet", pretraining=None)
def convnet(pretrained: bool, weights: Path | None) -> ConvNet:  # noqa: ARG001  builders share a signature
    """Return the network with random weights: there are no others."""
    if pretrained:
        raise InputError("There are no pretrained weights for convnet; create it with pretrained=False.")
    network = ConvNet(BackboneConfig("convnet", 8, GRAY, GRAY, 4 * CHANNELS))
    init_weights(network)
    return network
