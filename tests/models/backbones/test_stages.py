"""Stages of backbones, and their lower and upper parts."""

import copy
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from proxyhash import wrap_backbone
from proxyhash.models.backbones import Backbone, create_backbone, list_backbones, timm_models
from proxyhash.models.backbones.base import IMAGENET_MEAN, IMAGENET_STD, BackboneConfig
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.backbones.timm_models import TimmBackbone
from proxyhash.utils.errors import InputError

COUNTS = {"alexnet": 7, "convnet": 3, "efficientnet_lite0": 18, "efficientnet_lite1": 23, "efficientnet_lite2": 23}
SIDES = {"alexnet": 63, "convnet": 8}  # small, so that the tests are fast; 33 for the others

every_backbone = pytest.mark.parametrize("name", list_backbones())


@cache
def untrained(name: str) -> Backbone:
    return create_backbone(name, pretrained=False, seed=5)


def images(name: str, count: int = 3) -> Tensor:
    side = SIDES.get(name, 33)
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def run(modules: list[nn.Module], inputs: Tensor, *, training: bool) -> Tensor:
    """Return the composition of modules; dropout draws from the same stream in each call."""
    torch.manual_seed(1)
    for module in modules:
        inputs = module.train(training)(inputs)
    return inputs


def network(*layers: nn.Module) -> Backbone:
    """Return layers of the user as a backbone."""
    return wrap_backbone(nn.Sequential(*layers), image_size=8)


@every_backbone
def test_every_backbone_has_its_stages(name: str) -> None:
    assert len(untrained(name).stages()) == COUNTS[name]


@every_backbone
@pytest.mark.parametrize("training", [False, True])
def test_stages_in_a_row_are_the_network(name: str, training: bool) -> None:
    whole, cut = copy.deepcopy(untrained(name)), copy.deepcopy(untrained(name))
    with torch.no_grad():
        expected = run([whole], images(name), training=training)
        found = run(cut.stages(), images(name), training=training)
    torch.testing.assert_close(found, expected)
    for key, value in whole.state_dict().items():  # running statistics too
        torch.testing.assert_close(cut.state_dict()[key], value)


@every_backbone
def test_parts_of_every_cut_give_the_features(name: str) -> None:
    backbone = untrained(name).eval()
    with torch.inference_mode():
        features = backbone(images(name))
        for upper in range(1, COUNTS[name]):
            lower_part, upper_part = split_stages(backbone, upper)
            assert len(upper_part) == upper
            torch.testing.assert_close(run([lower_part, upper_part], images(name), training=False), features)


@every_backbone
def test_parts_share_no_weights_and_have_all_of_them(name: str) -> None:
    backbone = untrained(name)
    names = [module for module, _ in backbone.named_modules()]
    for upper in (1, backbone.last_stages, COUNTS[name] - 1):
        lower, higher = ({id(weight) for weight in part.parameters()} for part in split_stages(backbone, upper))
        assert not lower & higher
        assert lower | higher == {id(weight) for weight in backbone.parameters()}
        assert lower
        assert higher
    assert [module for module, _ in backbone.named_modules()] == names, "the backbone registers no part"


@pytest.mark.parametrize(
    ("name", "upper", "shape"),
    [
        ("efficientnet_lite0", 5, (192, 7, 7)),
        ("efficientnet_lite1", 6, (192, 8, 8)),
        ("efficientnet_lite2", 6, (208, 9, 9)),
        ("alexnet", 2, (256, 6, 6)),  # conv5 and its pooling
        ("convnet", 1, (64, 4, 4)),
    ],
)
def test_default_cut_is_below_the_last_stages(name: str, upper: int, shape: tuple[int, ...]) -> None:
    backbone = untrained(name).eval()
    assert backbone.last_stages == upper
    side = backbone.config.image_size
    with torch.inference_mode():
        activations = split_stages(backbone, upper)[0].eval()(torch.zeros(1, 3, side, side))
    assert activations.shape[1:] == shape


@pytest.mark.parametrize("name", [name for name in list_backbones() if name.startswith("efficientnet")])
def test_activations_of_mobile_blocks_have_the_lowest_resolution(name: str) -> None:
    backbone = untrained(name).eval()
    values, heights = torch.zeros(1, 3, 64, 64), []
    with torch.inference_mode():
        for stage in backbone.stages()[:-1]:
            values = stage(values)
            heights.append(values.shape[2])
    below = COUNTS[name] - backbone.last_stages
    assert heights[below - 2] == 4
    assert set(heights[below - 1 :]) == {2}


@pytest.mark.parametrize("upper", [0, -1, 3, 99, True, False, 1.0, "last", "1", None, [1]])
def test_number_of_stages_out_of_range_is_one_sentence(upper: Any) -> None:
    sentence = r"convnet has 3 stages, and the last 1 to 2 can be trained, not [^.]*(\.0)?; use 'all' to train everything\.$"
    with pytest.raises(InputError, match=sentence):
        split_stages(untrained("convnet"), upper)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
def test_layers_of_a_sequential_are_its_stages(training: bool, pooled: bool) -> None:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Conv2d(4, 6, 3)]
    whole = network(*layers, *([nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else []))
    cut = copy.deepcopy(whole)
    pixels = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        expected = run([whole], pixels, training=training)
        assert expected.shape == (4, 6)
        torch.testing.assert_close(run(list(split_stages(cut, 3)), pixels, training=training), expected)
    assert whole.last_stages == (3 if pooled else 1), "the last layer that has weights is trained"


class OwnForward(nn.Sequential):
    """A sequence that does more than its layers in a row."""

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self:
            inputs = layer(inputs)
        return 2 * inputs


@pytest.mark.parametrize(
    "module",
    [nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(3, 4, 3)), OwnForward(nn.Conv2d(3, 4, 3), nn.ReLU())],
    ids=["no sequence", "one layer", "own forward"],
)
def test_other_networks_of_the_user_are_not_cut(module: nn.Module) -> None:
    name = type(module).__name__
    sentence = f"^{name} cannot be cut into stages, so only its head or all of it can be trained.$"
    backbone = wrap_backbone(module, image_size=8)
    for attempt in (backbone.stages, lambda: split_stages(backbone, 1), lambda: backbone.last_stages):
        with pytest.raises(InputError, match=sentence):
            attempt()


def test_upper_part_without_weights_is_refused() -> None:
    backbone = network(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    for upper in (1, 2):
        with pytest.raises(
            InputError, match=f"The last {upper} of the 3 stages of Sequential have no weights; train more of them."
        ):
            split_stages(backbone, upper)


def test_weights_in_both_parts_are_refused() -> None:
    shared = nn.Conv2d(4, 4, 1)
    backbone = network(nn.Conv2d(3, 4, 3), shared, nn.ReLU(), shared, nn.Conv2d(4, 5, 1))
    for upper in (2, 3):
        with pytest.raises(InputError, match="uses the same weights in both of its parts; train another number of stages"):
            split_stages(backbone, upper)
    for upper in (1, 4):
        lower, higher = split_stages(backbone, upper)
        assert lower(torch.zeros(1, 3, 8, 8)).shape[1] == 4
        assert higher


class SmallTimm(nn.Module):
    """A network with the attribute by which timm names its feature stages."""

    def __init__(self, *, returns_twins: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, stride=2)
        self.blocks = nn.Sequential(nn.Conv2d(4, 6, 1), nn.BatchNorm2d(6), nn.Conv2d(6, 8, 1))
        self.norm = nn.BatchNorm2d(8)
        self.feature_info = [{"module": "stem"}, {"module": "blocks.0"}, {"module": "blocks.2"}]
        self.returns_twins = returns_twins

    def forward(self, inputs: Tensor) -> Tensor:
        maps: Tensor = self.blocks(self.stem(inputs).relu())
        if self.returns_twins and self.training:
            maps = maps + 1
        pooled: Tensor = self.norm(maps).mean((2, 3))
        return nn.functional.dropout(pooled, 0.5, self.training)


@pytest.fixture
def no_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare timm: the stages of `SmallTimm` need its list of functions only, which is empty here."""
    fake = SimpleNamespace(models=SimpleNamespace(get_notrace_functions=list))
    monkeypatch.setattr(timm_models, "_import_timm", lambda: fake)


def timm_backbone(module: nn.Module) -> Backbone:
    return TimmBackbone(BackboneConfig("timm/small", 9, IMAGENET_MEAN, IMAGENET_STD, 8), module)


@pytest.mark.usefixtures("no_timm")
@pytest.mark.parametrize("training", [False, True])
def test_feature_stages_of_timm_are_stages(training: bool) -> None:
    torch.manual_seed(0)
    whole = timm_backbone(SmallTimm())
    cut = copy.deepcopy(whole)
    pixels = torch.randn(4, 3, 9, 9)
    assert len(cut.stages()) == 4
    assert cut.last_stages == 2
    with torch.no_grad():
        expected = run([whole], pixels, training=training)
        for upper in (1, 2, 3):
            again = copy.deepcopy(cut)
            found = run(list(split_stages(again, upper)), pixels, training=training)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(again.state_dict(), whole.state_dict())


@pytest.mark.usefixtures("no_timm")
def test_network_of_timm_that_cannot_be_traced_is_one_sentence() -> None:
    for module in (SmallTimm(returns_twins=True), nn.Conv2d(3, 8, 9)):
        with pytest.raises(InputError, match=r"^timm/small (cannot be cut into stages|has 1 stages)"):
            split_stages(timm_backbone(module), 1)


@pytest.mark.parametrize("name", ["resnet18", "mobilenetv3_small_050", "vit_tiny_patch16_224", "convnext_atto"])
def test_models_of_timm_are_cut(name: str) -> None:
    try:
        backbone = create_backbone(f"timm/{name}", pretrained=False, seed=1).eval()
    except InputError:
        pytest.skip("timm is not installed")
    pixels = torch.randn(1, 3, backbone.config.image_size, backbone.config.image_size)
    with torch.inference_mode():
        lower, upper = split_stages(backbone, backbone.last_stages)
        features = run([lower, upper], pixels, training=False)
        torch.testing.assert_close(features, backbone(pixels), rtol=1e-3, atol=1e-4)
    assert not {id(weight) for weight in lower.parameters()} & {id(weight) for weight in upper.parameters()}
