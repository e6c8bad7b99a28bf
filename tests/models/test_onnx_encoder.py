"""Encoding without torch gives what encoding with torch gives."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.images import save_image
from helpers.models import make_model, relist, rewrite_json
from proxyhash.data.images import FileImages
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform, get_transform
from proxyhash.models.hasher import Hasher
from proxyhash.models.heads.base import HEADS, Head
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.onnx_encoder import SIGN_HEADS, OnnxEncoder
from proxyhash.models.onnx_export import export_onnx
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.errors import InputError


class Recorder:
    """A backend that keeps its inputs."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.inputs: list[Floats] = []

    def __call__(self, pixels: Floats) -> Floats:
        self.inputs.append(pixels)
        return np.zeros((len(pixels), self.bits), np.float32)


@pytest.fixture(scope="module")
def pixels() -> "np.ndarray[Any, np.dtype[np.uint8]]":
    return np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)


@pytest.fixture
def changeable(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "model"))


def test_everything_is_what_the_hasher_gives(
    model: Path, photos: Path, pixels: "np.ndarray[Any, np.dtype[np.uint8]]"
) -> None:
    hasher, encoder = Hasher.load(model), OnnxEncoder.load(model)
    files = sorted(photos.rglob("*.png"))
    assert OnnxEncoder.can_load(model)
    for name in ("bits", "out_features", "pixel_spec", "transform", "class_names", "metadata", "folder"):
        assert getattr(encoder, name) == getattr(hasher, name), name
    np.testing.assert_array_equal(encoder.embed(files), hasher.embed(files))
    np.testing.assert_array_equal(encoder.encode(pixels), hasher.encode(pixels))
    decoded = np.stack([encoder.pixel_spec.decode(file) for file in files])
    np.testing.assert_array_equal(encoder.embed_pixels(decoded), hasher.embed(files))
    ((indices, rows),) = encoder.embed_batches(files, SkippedItems(), indices=np.array([3, 1]))
    np.testing.assert_array_equal(indices, [3, 1])
    np.testing.assert_array_equal(rows, hasher.embed([files[3], files[1]]))


def test_embeddings_and_features_of_one_pass_are_those_of_two(model: Path, photos: Path) -> None:
    hasher, files = Hasher.load(model), sorted(photos.rglob("*.png"))
    without_onnx = replace(hasher, onnx=None)
    for encoder in (hasher, without_onnx, OnnxEncoder.load(model)):
        assert encoder.has_features
        ((indices, outputs),) = encoder.output_batches(files, SkippedItems())
        np.testing.assert_array_equal(indices, np.arange(len(files)))
        np.testing.assert_array_equal(outputs.embeddings, encoder.embed(files))
        np.testing.assert_allclose(outputs.features, hasher.features(files), atol=1e-4)
        decoded = np.stack([encoder.pixel_spec.decode(file) for file in files])
        np.testing.assert_array_equal(encoder.outputs_of_pixels(decoded).features, outputs.features)


def test_an_onnx_file_without_features_leaves_them_to_torch(changeable: Path, photos: Path) -> None:
    hasher, files = Hasher.load(changeable), sorted(photos.rglob("*.png"))
    export_onnx(hasher.network, changeable / "model.onnx", hasher.transform.size)
    relist(changeable, "model.onnx")
    assert not OnnxEncoder.load(changeable).has_features
    again = Hasher.load(changeable)
    assert again.has_features
    ((_, outputs),) = again.output_batches(files, SkippedItems())
    np.testing.assert_allclose(outputs.features, hasher.features(files), atol=1e-4)
    np.testing.assert_allclose(outputs.embeddings, again.embed(files), atol=1e-5)


def test_unreadable_images_are_skipped(model: Path, photos: Path) -> None:
    (photos / "broken.png").write_bytes(b"no image")
    skipped = SkippedItems()
    images = FileImages(photos, ["broken.png", "cats/0.png"])
    kept, embeddings = OnnxEncoder.load(model).embed(images, on_error="skip", skipped=skipped)
    np.testing.assert_array_equal(kept, [1])
    np.testing.assert_array_equal(embeddings, OnnxEncoder.load(model).embed([photos / "cats" / "0.png"]))
    assert skipped.counts == {"unreadable image": 1}


@pytest.mark.parametrize(
    "transform",
    [
        get_transform("paper-cifar"),
        get_transform("paper-256"),
        get_transform("small", 16),
        get_transform("small", 48),
        get_transform("photo", 16),
        get_transform("photo", 28),
        replace(get_transform("photo", 16), fit="squash"),
        Transform("mini", "", 16, 24, crop="random_crop"),
        Transform("mini", "", 32, 24, crop="pad_shift"),
    ],
    ids=lambda transform: f"{transform.name}-{transform.size}-{transform.fit}-{transform.crop}",
)
def test_networks_get_equal_pixels_with_and_without_torch(
    model: Path, photos: Path, transform: Transform, pixels: "np.ndarray[Any, np.dtype[np.uint8]]", monkeypatch: Any
) -> None:
    """Torch is given the same pixels: of files, of images in memory, and of images that were decoded before."""
    with_onnx, with_torch = Recorder(32), Recorder(32)
    monkeypatch.setattr(TorchBackend, "__call__", lambda _, images: with_torch(images))
    encoder = replace(OnnxEncoder.load(model), backend=with_onnx, transform=transform)
    hasher = replace(Hasher.load(model), onnx=None, transform=transform)
    files = sorted(photos.rglob("*.png"))
    decoded = np.stack([transform.pixel_spec.decode(file) for file in files])
    for each in (encoder, hasher):
        each.embed(files)
        each.embed(pixels)
        each.embed_pixels(decoded)
    assert len(with_onnx.inputs) == 3
    for ours, theirs in zip(with_onnx.inputs, with_torch.inputs, strict=True):
        assert ours.shape[1:] == (3, transform.size, transform.size)
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(with_onnx.inputs[0], with_onnx.inputs[2])


def test_heads_whose_codes_are_signs_are_known() -> None:
    signs = {
        name for name, head in HEADS.items() if head.encode is Head.encode and head.encode_queries is Head.encode_queries
    }
    assert signs == set(SIGN_HEADS)


@pytest.mark.parametrize("name", ["model.onnx", "probe.safetensors"])
def test_models_without_an_onnx_file_or_a_probe_need_torch(changeable: Path, name: str) -> None:
    (changeable / name).unlink()
    assert not OnnxEncoder.can_load(changeable)


def test_heads_that_need_more_than_signs_need_torch(changeable: Path) -> None:
    config = json.loads((changeable / "config.json").read_text())
    for kind in ("weighted", "blocks", "of a plugin", None):
        rewrite_json(changeable / "config.json", head=config["head"] | {"kind": kind})
        assert not OnnxEncoder.can_load(changeable)


@pytest.mark.parametrize("name", ["model.onnx", "probe.safetensors", "model.safetensors", "proxies.safetensors"])
def test_damaged_files_are_refused(changeable: Path, name: str) -> None:
    content = bytearray((changeable / name).read_bytes())
    content[len(content) // 2] ^= 1
    (changeable / name).write_bytes(content)
    with pytest.raises(InputError, match=f"{name} is damaged: its checksum differs"):
        OnnxEncoder.load(changeable)


def test_an_onnx_file_of_another_model_is_refused(changeable: Path, tmp_path: Path) -> None:
    other = make_model(32, 7, tmp_path / "other")
    shutil.copy(other / "model.onnx", changeable / "model.onnx")
    relist(changeable, "model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx does not give the outputs of this model"):
        OnnxEncoder.load(changeable)


def test_another_number_of_bits_is_refused(changeable: Path) -> None:
    head = json.loads((changeable / "config.json").read_text())["head"]
    rewrite_json(changeable / "config.json", head=head | {"bits": 24})
    with pytest.raises(InputError, match="it has another number of bits"):
        OnnxEncoder.load(changeable)


@pytest.mark.parametrize(
    ("field", "value"), [("transform", 3), ("class_names", "a"), ("metadata", 0), ("head", {"bits": "x"})]
)
def test_values_of_the_wrong_type_are_refused(changeable: Path, field: str, value: Any) -> None:
    rewrite_json(changeable / "config.json", **{field: value})
    with pytest.raises(InputError):
        OnnxEncoder.load(changeable)


def test_large_batches_are_split(model: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (70, 16, 16, 3), dtype=np.uint8)
    encoder = OnnxEncoder.load(model)
    np.testing.assert_allclose(encoder.embed(pixels)[64:], encoder.embed(pixels[64:]), atol=1e-5)


def test_encoding_imports_neither_torch_nor_onnx(model: Path, tmp_path: Path) -> None:
    save_image(np.zeros((20, 30, 3), np.uint8), tmp_path / "query.png")
    program = (
        "import sys; from pathlib import Path; from proxyhash.models.onnx_encoder import OnnxEncoder\n"
        "OnnxEncoder.load(Path(sys.argv[1])).encode([sys.argv[2]])\n"
        "assert not {'torch', 'onnx', 'onnxscript', 'scipy.optimize'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, str(model), str(tmp_path / "query.png")], check=True)
