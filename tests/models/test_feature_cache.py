import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from proxyhash.data import Dataset, SkippedItems, load_dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.transforms import get_transform
from proxyhash.models import extraction
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.network import NormalizedBackbone
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.errors import InputError

TRANSFORM = get_transform("small", 8)


@pytest.fixture(autouse=True)
def _torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the seconds of an export, but where it is what is tested."""
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: False)


@pytest.fixture
def backbone() -> Backbone:
    return create_backbone("convnet", pretrained=False).eval()


def small(count: int = 150) -> Dataset:
    digits = load_dataset("digits").subset(np.arange(count))
    stored = digits.images.pixels_in_memory(np.arange(count))
    assert stored is not None
    return replace(digits, images=ArrayImages(stored), skipped=SkippedItems())


def test_features_are_mapped_and_computed_once(tmp_path: Path, backbone: Backbone) -> None:
    heard: list[str] = []
    first = cached_features(small(), backbone, TRANSFORM, folder=tmp_path, progress=lambda work, _: heard.append(work))
    assert isinstance(first.values, np.memmap)
    assert not first.values.flags.writeable
    assert set(heard) == {"extracting features"}
    again = cached_features(small(), backbone, TRANSFORM, folder=tmp_path, progress=lambda *_: pytest.fail("computed again"))
    np.testing.assert_array_equal(again.values, first.values)
    stored = small().images.pixels_in_memory(np.arange(150))
    assert stored is not None
    with torch.inference_mode():
        expected = NormalizedBackbone(backbone)(torch.from_numpy(stored).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(first.values, expected, atol=1e-5)
    assert first.readable.all()
    assert {file.name for file in first.folder.iterdir()} == {"features.npy", "readable.npy", "checksums.json"}


def test_onnxruntime_gives_the_same_features(tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    by_torch = cached_features(small(20), backbone, TRANSFORM, folder=tmp_path / "torch")
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: True)
    by_onnx = cached_features(small(20), backbone, TRANSFORM, folder=tmp_path / "onnx")
    np.testing.assert_allclose(by_onnx.values, by_torch.values, atol=1e-4)
    assert not (by_onnx.folder / "network.onnx").exists()


def test_a_changed_network_image_or_transform_is_another_entry(tmp_path: Path, backbone: Backbone) -> None:
    def entry(dataset: Dataset, size: int = 8) -> Path:
        return cached_features(dataset, backbone, get_transform("small", size), folder=tmp_path).folder

    entries = [entry(small(10)), entry(small(11)), entry(small(10), size=16)]
    assert entry(small(10)) == entries[0]
    with torch.no_grad():
        next(backbone.parameters())[0, 0, 0, 0] += 1e-3
    entries.append(entry(small(10)))
    assert len(set(entries)) == 4


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_feature_cache as test
from proxyhash.models import extraction, row_cache, runtime
extraction.is_onnx_available = lambda: False
runtime.BATCH_SIZE, row_cache.SAVE_EVERY = 16, 2

def progress(work, fraction):
    if fraction > 0.6:
        os.kill(os.getpid(), signal.SIGKILL)

backbone = test.create_backbone("convnet", pretrained=False).eval()
test.cached_features(test.small(), backbone, test.TRANSFORM, folder=Path({folder!r}), progress=progress)
"""


def test_a_killed_extraction_goes_on(tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    script = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    whole = cached_features(small(), backbone, TRANSFORM, folder=tmp_path / "whole")
    asked: list[int] = []
    usual = TorchBackend.__call__

    def count(runner: TorchBackend, pixels: np.ndarray) -> np.ndarray:
        asked.append(len(pixels))
        return usual(runner, pixels)

    monkeypatch.setattr(TorchBackend, "__call__", count)
    resumed = cached_features(small(), backbone, TRANSFORM, folder=tmp_path / "killed")
    assert sum(asked) == 150 - 96  # six batches of 16 were noted
    np.testing.assert_allclose(resumed.values, whole.values, atol=1e-6)
    assert resumed.readable.all()


def test_a_damaged_part_is_begun_anew(tmp_path: Path, backbone: Backbone) -> None:
    whole = cached_features(small(20), backbone, TRANSFORM, folder=tmp_path)
    expected = np.array(whole.values)
    for part, mark in (
        (b"", b'{"done": 5}'),
        (b"hello", b'{"done": 5}'),
        (None, b"{"),
        (None, b'{"done": 500}'),
        (None, None),
    ):
        (whole.folder / "features.npy").rename(whole.folder / "features.part")
        if part is not None:
            (whole.folder / "features.part").write_bytes(part)
        if mark is not None:
            (whole.folder / "progress.json").write_bytes(mark)
        np.testing.assert_array_equal(cached_features(small(20), backbone, TRANSFORM, folder=tmp_path).values, expected)


@pytest.mark.parametrize("name", ["features.npy", "readable.npy"])
@pytest.mark.parametrize("content", [b"", b"hello", None, "cut", "other", "flipped"])
def test_a_damaged_cache_is_refused(tmp_path: Path, backbone: Backbone, name: str, content: bytes | str | None) -> None:
    entry = cached_features(small(20), backbone, TRANSFORM, folder=tmp_path).folder
    file = entry / name
    if content is None:
        if name == "features.npy":
            return  # then they are extracted again
        file.unlink()
    elif content == "cut":
        file.write_bytes(file.read_bytes()[:-4])
    elif content == "flipped":
        file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1]))
    elif content == "other":
        np.save(file, np.ones(3))
    else:
        assert isinstance(content, bytes)
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"The cached features in .* are damaged; delete that folder."):
        cached_features(small(20), backbone, TRANSFORM, folder=tmp_path)


@pytest.mark.parametrize("bad", [[0, 5], [9], [2, 3], list(range(3, 10))])
def test_unreadable_images_are_counted_and_marked(
    tmp_path: Path, backbone: Backbone, bad: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxyhash.models.runtime.BATCH_SIZE", 2)  # whole batches are unreadable
    names = [f"{number}.png" for number in range(10)]
    for number, name in enumerate(names):
        if number in bad:
            (tmp_path / name).write_bytes(b"no image")
        else:
            Image.new("RGB", (8, 8)).save(tmp_path / name)  # black: its features may well be zero
    for _ in range(2):
        dataset = Dataset("files", FileImages(tmp_path, names))
        features = cached_features(dataset, backbone, TRANSFORM, folder=tmp_path / "cache")
        assert np.flatnonzero(~features.readable).tolist() == bad
        assert dataset.skipped.counts["unreadable image"] == len(bad)
    strict = Dataset("files", FileImages(tmp_path, names), skipped=SkippedItems(strict=True))
    for folder in ("cache", "new"):
        with pytest.raises(InputError, match=f"{bad[0]}.png"):
            cached_features(strict, backbone, TRANSFORM, folder=tmp_path / folder)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, backbone: Backbone) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"Cannot keep features in .*file"):
        cached_features(small(5), backbone, TRANSFORM, folder=tmp_path / "file")


def test_an_entry_without_checksums_is_read(tmp_path: Path, backbone: Backbone) -> None:
    entry = cached_features(small(20), backbone, TRANSFORM, folder=tmp_path)
    (entry.folder / "checksums.json").unlink()  # as release 0.1 wrote it
    again = cached_features(
        small(20), backbone, TRANSFORM, folder=tmp_path, progress=lambda *_: pytest.fail("computed again")
    )
    np.testing.assert_array_equal(again.values, entry.values)
