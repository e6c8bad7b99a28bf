import hashlib
from pathlib import Path

import pytest
import torch

from proxyhash.models.backbones import alexnet, create_backbone
from proxyhash.utils.errors import InputError

# The names and shapes in torchvision's file alexnet-owt-7be5be79.pth.
TORCHVISION = {
    "features.0": (64, 3, 11, 11),
    "features.3": (192, 64, 5, 5),
    "features.6": (384, 192, 3, 3),
    "features.8": (256, 384, 3, 3),
    "features.10": (256, 256, 3, 3),
    "classifier.1": (4096, 9216),
    "classifier.4": (4096, 4096),
    "classifier.6": (1000, 4096),
}


def torchvision_file(path: Path, *, without: str = "") -> str:
    """Write a file of that layout with one value a tensor (which takes a few bytes); return its checksum."""
    state = {}
    for layer, shape in TORCHVISION.items():
        state[f"{layer}.weight"] = torch.full((1,), 1e-3).expand(shape)
        state[f"{layer}.bias"] = torch.full((1,), 0.5).expand(shape[:1])
    state.pop(without, None)
    torch.save(state, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_torchvisions_layout_loads_from_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "alexnet.pth"
    monkeypatch.setattr(alexnet, "SHA256", torchvision_file(path)[:8])
    network = create_backbone("alexnet", weights=path)
    assert network.config.pretrained_on == "ILSVRC-2012"
    state = network.state_dict()
    assert len(state) == 14
    for name, tensor in state.items():
        assert (tensor == (0.5 if name.endswith("bias") else torch.tensor(1e-3))).all()


def test_a_file_without_one_layer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "alexnet.pth"
    monkeypatch.setattr(alexnet, "SHA256", torchvision_file(path, without="features.3.bias")[:8])
    with pytest.raises(InputError, match=r"features\.3\.bias is missing"):
        create_backbone("alexnet", weights=path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "alexnet.pth"
    torchvision_file(path)
    with pytest.raises(InputError, match="is not the official file"):
        create_backbone("alexnet", weights=path)


def test_features_are_rectified_and_the_papers_227_pixels_fit_too() -> None:
    network = create_backbone("alexnet", pretrained=False).eval()
    with torch.inference_mode():
        for side in (224, 227):
            features = network(torch.randn(1, 3, side, side))
            assert features.shape == (1, 4096)
            assert (features >= 0).all()
            assert 0.1 < (features == 0).float().mean() < 0.9


def test_dropout_acts_in_training_only() -> None:
    network = create_backbone("alexnet", pretrained=False).train()
    images = torch.randn(1, 3, 64, 64)
    with torch.inference_mode():
        assert not torch.equal(network(images), network(images))
        network.eval()
        assert torch.equal(network(images), network(images))
