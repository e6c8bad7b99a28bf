"""AlexNet (Krizhevsky 2014, "one weird trick"), in the layout of torchvision's weights."""

from itertools import pairwise
from pathlib import Path

from torch import Tensor, nn

from proxyhash.models.backbones.base import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Backbone,
    BackboneConfig,
    init_weights,
    register_backbone,
)
from proxyhash.models.backbones.weights import StateDict, load_state, official_file, read_state

URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
SHA256 = "7be5be79"  # torchvision's file names end in the beginning of their checksum
DROPOUT = 0.5


class AlexNet(Backbone):
    """Five convolutions and two wide layers: the 4096 features of fc7, after its ReLU.

    The paper cuts images of 227 pixels, torchvision's weights were trained with 224; pooling to 6 x 6 accepts both.
    """

    def __init__(self, config: BackboneConfig) -> None:
        super().__init__(config)
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.AdaptiveAvgPool2d(6),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(DROPOUT),
            nn.Linear(256 * 6 * 6, config.num_features),
            nn.ReLU(inplace=True),
            nn.Dropout(DROPOUT),
            nn.Linear(config.num_features, config.num_features),
            nn.ReLU(inplace=True),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, 4096) of normalized images (N, 3, H, W)."""
        maps: Tensor = self.features(images)
        features: Tensor = self.classifier(maps.flatten(1))
        return features

    def stages(self) -> list[nn.Module]:
        """Return the five convolutions, with the pooling that follows them, and the two wide layers."""
        convolutions = [self.features[begin:end] for begin, end in pairwise([0, 3, 6, 8, 10, len(self.features)])]
        wide = [self.classifier[:3], self.classifier[3:]]
        return [*convolutions, nn.Sequential(nn.Flatten(), wide[0]), wide[1]]

    @property
    def last_stages(self) -> int:
        """Return 2: the wide layers, which have 96 % of the weights."""
        return 2


def drop_classifier(state: StateDict) -> StateDict:
    """Return torchvision's tensors without the layer of ImageNet's 1000 classes."""
    return {name: tensor for name, tensor in state.items() if name not in ("classifier.6.weight", "classifier.6.bias")}


@register_backbone("alexnet", pretraining="ILSVRC-2012")
def alexnet(pretrained: bool, weights: Path | None) -> AlexNet:
    """Return the network with torchvision's weights, or random ones."""
    state = read_state(official_file(URL, SHA256, weights), SHA256) if pretrained else None
    network = AlexNet(
        BackboneConfig("alexnet", 224, IMAGENET_MEAN, IMAGENET_STD, 4096, "ILSVRC-2012" if pretrained else None)
    )
    if state is not None:
        load_state(network, drop_classifier(state))
    else:
        init_weights(network)
    return network
