from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from proxyhash.models import onnx_export
from proxyhash.models.backbones import create_backbone
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig, NormalizedBackbone
from proxyhash.models.onnx_backend import OnnxBackend
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.errors import InputError


def network(bits: int = 10) -> HashNetwork:
    torch.manual_seed(0)
    return HashNetwork(
        create_backbone("convnet", pretrained=False), HashHead(HeadConfig(256, bits, hidden_dim=8, dropout=0.5))
    )


def test_any_number_of_images_goes_in(tmp_path: Path) -> None:
    export_onnx(network(), tmp_path / "model.onnx", 8)
    graph = onnx.load(tmp_path / "model.onnx").graph
    assert [value.name for value in graph.input] == ["pixels"]
    assert [value.name for value in graph.output] == ["nu"]
    ours, theirs = TorchBackend(network()), OnnxBackend(tmp_path / "model.onnx", threads=1)
    for count in (1, 2, 7, 64):
        pixels = np.random.default_rng(count).uniform(0, 255, (count, 3, 8, 8)).astype(np.float32)
        np.testing.assert_allclose(theirs(pixels), ours(pixels), atol=1e-5)
        channels_last = pixels.transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(theirs(channels_last), theirs(pixels))
        np.testing.assert_array_equal(ours(channels_last), ours(pixels))
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


def test_the_file_holds_no_paths_of_this_machine(tmp_path: Path) -> None:
    export_onnx(network(), tmp_path / "model.onnx", 8)
    content = (tmp_path / "model.onnx").read_bytes()
    assert str(Path(onnx_export.__file__).parents[1]).encode() not in content
    assert b"site-packages" not in content
    assert b".py" not in content


def test_another_answer_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flipped(OnnxBackend):
        def run_all(self, pixels: np.ndarray) -> list[np.ndarray]:
            outputs = super().run_all(pixels)
            outputs[0][3, 2] *= -1
            return outputs

    monkeypatch.setattr(onnx_export, "OnnxBackend", Flipped)
    with pytest.raises(InputError, match=r"does not give the network's own answers, so it was not written."):
        export_onnx(network(), tmp_path / "model.onnx", 8)
    assert list(tmp_path.iterdir()) == []


def test_what_torch_cannot_export_is_said_so(tmp_path: Path) -> None:
    class Undecided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, pixels: Tensor) -> Tensor:
            means = pixels.mean((2, 3))
            return self.layer(means) if means.sum() > 0 else -self.layer(means)  # type: ignore[no-any-return]

    with pytest.raises(InputError, match="This network cannot be written as ONNX"):
        export_onnx(Undecided(), tmp_path / "model.onnx", 8)
    assert list(tmp_path.iterdir()) == []


def test_the_normalization_travels_with_the_network() -> None:
    backbone = create_backbone("convnet", pretrained=False).eval()
    pixels = torch.randint(0, 256, (3, 3, 8, 8), dtype=torch.uint8)
    with torch.inference_mode():
        torch.testing.assert_close(NormalizedBackbone(backbone)(pixels.float()), backbone((pixels - 127.5) / 127.5))


def test_the_head_is_the_papers_unless_told_otherwise() -> None:
    plain = HashHead(HeadConfig(6, 4))
    features = torch.randn(5, 6)
    (linear,) = plain.layers
    assert isinstance(linear, nn.Linear)
    torch.testing.assert_close(plain(features), torch.tanh(features @ linear.weight.T + linear.bias))
    kinds = [type(layer) for layer in HashHead(HeadConfig(6, 4, hidden_dim=3, dropout=0.1)).layers]
    assert kinds == [nn.Linear, nn.BatchNorm1d, nn.ReLU, nn.Dropout, nn.Linear]
