"""A network small enough to learn handwritten digits in seconds, for demos and tests."""

from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone, init_weights
from proxyhash.models.backbones.facts import BackboneConfig
from proxyhash.models.backbones.registry import Brief, register_backbone
from proxyhash.utils.errors import InputError

GRAY = (127.5,) * 3
CHANNELS = 64


class ConvNet(Backbone):
    """Three convolutions; the mean over each quarter of the image keeps a little of where things are."""

    def __init__(self, facts: BackboneConfig) -> None:
        super().__init__(facts)
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


def _layer(inputs: int, outputs: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


@register_backbone("convnet", trained_on=None)
def convnet(brief: Brief) -> ConvNet:
    """Return the network with random weights: there are no others."""
    if brief.pretrained:
        raise InputError("There are no pretrained weights for convnet; create it with pretrained=False.")
    network = ConvNet(BackboneConfig("convnet", 8, GRAY, GRAY, 4 * CHANNELS))
    init_weights(network)
    return network
