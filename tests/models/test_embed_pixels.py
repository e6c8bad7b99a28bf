"""Embeddings of images that were decoded before."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.transforms import get_transform
from proxyhash.models.hasher import Hasher
from proxyhash.utils.errors import InputError

TRANSFORMS = [("small", 16), ("photo", 16), ("paper-256", None)]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Return 70 image files of several sizes and formats: more than a batch."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(70):
        height, width = random.integers(10, 300, 2)
        paths.append(tmp_path / f"{number}.{'jpg' if number % 2 else 'png'}")
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(paths[-1])
    return paths


@pytest.mark.parametrize(("name", "size"), TRANSFORMS)
@pytest.mark.parametrize("with_onnx", [False, True])
def test_pixels_give_the_embeddings_of_their_files(
    model: Path, files: list[Path], name: str, size: int | None, with_onnx: bool
) -> None:
    hasher = replace(Hasher.load(model), transform=get_transform(name, size))
    assert hasher.onnx is not None
    if not with_onnx or size is None:  # the network was exported for 16 pixels
        hasher.onnx = None
    paths = files[:5] if size is None else files
    pixels = np.stack([hasher.pixel_spec.decode(path) for path in paths])
    np.testing.assert_array_equal(hasher.embed_pixels(pixels), hasher.embed(paths))


@pytest.mark.parametrize(("name", "size"), TRANSFORMS)
def test_spec_describes_what_it_decodes(name: str, size: int | None) -> None:
    spec = get_transform(name, size).pixel_spec
    file = io.BytesIO()
    Image.new("RGB", (50, 30)).save(file, "PNG")
    pixels = spec.decode(file)
    assert (pixels.shape, pixels.dtype) == (spec.shape, spec.dtype)
    assert spec == replace(spec)
    assert len({spec, replace(spec)}) == 1


@pytest.mark.parametrize(
    "pixels", [np.zeros((2, 16, 16, 3), np.float32), np.zeros((2, 15, 15, 3), np.uint8), np.zeros((16, 16, 3), np.uint8)]
)
def test_other_pixels_are_refused(model: Path, pixels: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"takes pixels of the type uint8 \(N, 16, 16, 3\), not"):
        Hasher.load(model).embed_pixels(pixels)


def test_no_pixels_have_no_embeddings(model: Path) -> None:
    assert Hasher.load(model).embed_pixels(np.zeros((0, 16, 16, 3), np.uint8)).shape == (0, 32)


def test_unreadable_image_is_called_by_its_name() -> None:
    with pytest.raises(UnreadableImageError, match="The image cannot be decoded"):
        PixelSpec(16).decode(io.BytesIO(b"no image"), name="The image")
    file = io.BytesIO()
    Image.new("RGB", (50, 30)).save(file, "PNG")
    with pytest.raises(UnreadableImageError, match="has more than 1,000 pixels"):
        PixelSpec(16).decode(file, max_pixels=1000)


def test_decoding_needs_no_torch() -> None:
    script = "import sys, proxyhash.data.pixel_spec; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
