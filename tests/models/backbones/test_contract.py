"""Contract of all registered backbones."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from proxyhash.models.backbones import Backbone, create_backbone, list_backbones
from proxyhash.utils.errors import InputError

every_backbone = pytest.mark.parametrize("name", list_backbones())


@cache
def untrained(name: str) -> Backbone:
    return create_backbone(name, pretrained=False, seed=5)


def images(network: Backbone, count: int = 2, largest: int = 96) -> torch.Tensor:
    side = min(network.config.image_size, largest)
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def test_these_are_the_backbones() -> None:
    lites = {f"efficientnet_lite{i}" for i in range(3)}
    assert set(list_backbones()) == {"alexnet", "convnet"} | lites


@every_backbone
def test_features_have_the_promised_width_and_differ_between_images(name: str) -> None:
    network = untrained(name).eval()
    with torch.inference_mode():
        features = network(images(network, largest=1000))
    assert features.shape == (2, network.config.num_features)
    assert features.isfinite().all()
    assert not torch.allclose(features[0], features[1])


@every_backbone
def test_an_image_has_the_same_features_in_any_company(name: str) -> None:
    network = untrained(name).eval()
    batch = images(network)
    with torch.inference_mode():
        torch.testing.assert_close(network(batch[:1]), network(batch)[:1], rtol=1e-3, atol=1e-4)


@every_backbone
def test_the_seed_decides_the_weights_and_the_callers_stream_stays(name: str) -> None:
    torch.manual_seed(8)
    expected = torch.rand(3)
    torch.manual_seed(8)
    weights, again, other = (list(create_backbone(name, pretrained=False, seed=seed).parameters()) for seed in (5, 5, 6))
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(*pair) for pair in zip(weights, again, strict=True))
    assert not torch.equal(weights[0], other[0])


@every_backbone
def test_facts_make_sense(name: str) -> None:
    facts = untrained(name).config
    assert facts.name == name
    assert facts.pretrained_on is None
    assert 8 <= facts.image_size <= 300
    black, white = ((value - torch.tensor(facts.mean)) / torch.tensor(facts.std) for value in (0, 255))
    assert (black < -0.9).all()
    assert (black > -3).all()
    assert (white > 0.9).all()
    assert (white < 3).all()


@every_backbone
def test_gradients_reach_the_first_layer(name: str) -> None:
    network = create_backbone(name, pretrained=False).train()
    network(images(network)).square().mean().backward()
    gradient = next(network.parameters()).grad
    assert gradient is not None
    assert gradient.isfinite().all()
    assert gradient.abs().max() > 0


@every_backbone
def test_random_weights_keep_the_size_of_the_signal(name: str) -> None:
    network = untrained(name).train()  # batch statistics, where there are any; dropout does not change the order of size
    with torch.no_grad():
        size = network(images(network, 4)).square().mean().sqrt().item()
    assert 0.05 < size < 20


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("efficientnet-lite0", "did you mean efficientnet_lite0"),
        ("AlexNet", "did you mean alexnet"),
        ("", "choose from .*timm/NAME"),
        ("resnet18", "choose from .*timm/NAME"),
    ],
)
def test_an_unknown_name_is_answered_with_what_to_type(name: str, answer: str) -> None:
    with pytest.raises(InputError, match=rf"There is no backbone '{re.escape(name)}'; {answer}"):
        create_backbone(name)


def test_random_and_given_weights_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave one of the two out"):
        create_backbone("alexnet", pretrained=False, weights=tmp_path / "file.pth")


def test_convnet_has_no_pretrained_weights() -> None:
    with pytest.raises(InputError, match="pretrained=False"):
        create_backbone("convnet")


def test_the_core_imports_without_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; import proxyhash.cli.app, proxyhash.evaluation, proxyhash.models"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_torch_backbones_say_what_to_install() -> None:
    script = (
        "import importlib.util as util; find = util.find_spec\n"
        "util.find_spec = lambda name: None if name == 'torch' else find(name)\n"
        "try: import proxyhash.models.backbones\n"
        "except ValueError as error: print(error)"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert 'pip install "proxyhash[train]"' in answer
