import sys
from pathlib import Path

import pytest
import torch

from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.timm_models import _import_timm, pretraining
from proxyhash.utils.errors import InputError


@pytest.fixture
def timm():  # type: ignore[no-untyped-def]
    """Import timm as we do: beside some builds of torchvision a plain import fails."""
    try:
        return _import_timm()
    except InputError:
        pytest.skip("timm is not installed")


def test_without_timm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r'pip install "proxyhash\[timm\]"'):
        create_backbone("timm/resnet18")


@pytest.mark.parametrize(
    ("tag", "weights", "expected"),
    [
        ("a1_in1k", None, "ILSVRC-2012"),
        ("in1k", None, "ILSVRC-2012"),
        ("augreg_in21k_ft_in1k", None, "timm's augreg_in21k_ft_in1k"),
        ("laion2b", None, "timm's laion2b"),
        ("a1_in1k", Path("folder/mine.pth"), "the file mine.pth"),
    ],
)
def test_the_tag_says_what_the_weights_saw(tag: str, weights: Path | None, expected: str) -> None:
    assert pretraining(tag, weights) == expected


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(("name", "width"), [("resnet18", 512), ("mobilenetv3_small_050", 1024)])
def test_models_of_timm_are_backbones(name: str, width: int) -> None:
    network = create_backbone(f"timm/{name}", pretrained=False, seed=1).eval()
    again = create_backbone(f"timm/{name}", pretrained=False, seed=1).eval()
    assert network.config.name == f"timm/{name}"
    assert network.config.mean == pytest.approx((123.675, 116.28, 103.53))
    assert (network.config.image_size, network.config.num_features) == (224, width)
    images = torch.randn(2, 3, 64, 64)
    assert network(images).shape == (2, width)
    assert torch.equal(network(images), again(images))


def test_a_file_loads_strictly_and_the_classifier_is_dropped(timm, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    whole = timm.create_model("resnet18").eval()
    path = tmp_path / "resnet18.pth"
    torch.save(whole.state_dict(), path)
    images = torch.randn(1, 3, 64, 64)
    expected = whole.forward_head(whole.forward_features(images), pre_logits=True)
    torch.testing.assert_close(create_backbone("timm/resnet18", weights=path).eval()(images), expected)
    torch.save({name: tensor for name, tensor in whole.state_dict().items() if name != "conv1.weight"}, path)
    with pytest.raises(InputError, match="does not hold the weights"):
        create_backbone("timm/resnet18", weights=path)


@pytest.mark.usefixtures("timm")
def test_an_unknown_model_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match="timm has no model 'resnet81'; did you mean resnet18"):
        create_backbone("timm/resnet81")
