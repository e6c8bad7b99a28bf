import errno
import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch

from proxyhash.data import Dataset, SkippedItems, load_dataset
from proxyhash.data.images import ArrayImages
from proxyhash.data.transforms import get_transform
from proxyhash.models import extraction
from proxyhash.models.activation_cache import cached_activations, to_inputs
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.cache_kinds import PROGRESS
from proxyhash.models.network import NormalizedBackbone
from proxyhash.models.row_cache import RowCache
from proxyhash.models.torch_backend import TorchBackend
from proxyhash.utils.errors import InputError, ProxyhashWarning

TRANSFORM = get_transform("small", 8)
UPPER = 1


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


def pixels(dataset: Dataset) -> torch.Tensor:
    stored = dataset.images.pixels_in_memory(np.arange(len(dataset)))
    assert stored is not None
    return torch.from_numpy(stored).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize("upper", [1, 2])
def test_upper_stages_turn_activations_into_features(tmp_path: Path, backbone: Backbone, upper: int) -> None:
    cached = cached_activations(small(), backbone, TRANSFORM, upper, folder=tmp_path)
    assert cached.crops[0].dtype == np.float16
    assert not cached.crops[0].flags.writeable
    with torch.inference_mode():
        features = split_stages(backbone, upper)[1](to_inputs(np.array(cached.crops[0])))
        expected = NormalizedBackbone(backbone)(pixels(small()))
    np.testing.assert_allclose(features, expected, atol=2e-3 * float(expected.abs().max()))
    assert cached.readable.all()


def test_onnxruntime_gives_the_same_activations(tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    by_torch = cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path / "torch")
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: True)
    by_onnx = cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path / "onnx")
    assert by_onnx.crops[0].shape == by_torch.crops[0].shape
    np.testing.assert_allclose(by_onnx.crops[0], by_torch.crops[0], rtol=1e-2, atol=1e-2)


def test_activations_are_computed_once(tmp_path: Path, backbone: Backbone) -> None:
    heard: list[str] = []
    cached_activations(small(), backbone, TRANSFORM, UPPER, folder=tmp_path, progress=lambda work, _: heard.append(work))
    assert {work.partition(":")[0] for work in heard} == {"caching activations"}
    cached_activations(
        small(), backbone, TRANSFORM, UPPER, folder=tmp_path, progress=lambda *_: pytest.fail("computed again")
    )


def test_another_network_size_stage_or_transform_is_another_entry(tmp_path: Path, backbone: Backbone) -> None:
    def entries(dataset: Dataset, size: int = 8, upper: int = UPPER, crops: int = 1) -> int:
        cached_activations(dataset, backbone, get_transform("small", size), upper, crops=crops, folder=tmp_path)
        return len([path for path in tmp_path.iterdir() if path.is_dir()])

    assert entries(small(10)) == 1
    assert entries(small(11)) == 2
    assert entries(small(10), size=16) == 3
    assert entries(small(10), upper=2) == 4
    assert entries(small(10), crops=2) == 5
    with torch.no_grad():
        next(backbone.parameters())[0, 0, 0, 0] += 1e-3
    assert entries(small(10)) == 6
    assert entries(small(10)) == 6


def test_trained_upper_stages_share_the_entry(tmp_path: Path, backbone: Backbone) -> None:
    cached_activations(small(10), backbone, TRANSFORM, UPPER, folder=tmp_path)
    with torch.no_grad():
        for parameter in split_stages(backbone, 1)[1].parameters():
            parameter.add_(1)
    cached_activations(small(10), backbone, TRANSFORM, UPPER, folder=tmp_path, progress=lambda *_: pytest.fail("again"))


def test_further_crops_differ_and_the_first_is_that_of_the_evaluation(tmp_path: Path, backbone: Backbone) -> None:
    one = cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path)
    two = cached_activations(small(20), backbone, TRANSFORM, UPPER, crops=2, folder=tmp_path)
    np.testing.assert_array_equal(two.crops[0], one.crops[0])
    assert (two.crops[1] != one.crops[0]).any()
    again = cached_activations(small(20), backbone, TRANSFORM, UPPER, crops=2, folder=tmp_path / "again")
    np.testing.assert_array_equal(again.crops[1], two.crops[1])


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_activation_cache as test
from proxyhash.models import extraction, row_cache, runtime
extraction.is_onnx_available = lambda: False
runtime.BATCH_SIZE, row_cache.SAVE_EVERY = 16, 2

def progress(work, fraction):
    if fraction > 0.6:
        os.kill(os.getpid(), signal.SIGKILL)

backbone = test.create_backbone("convnet", pretrained=False).eval()
test.cached_activations(test.small(), backbone, test.TRANSFORM, 1, folder=Path({folder!r}), progress=progress)
"""


def test_killed_extraction_goes_on_to_the_same_activations(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = KILLED.format(tests=str(Path(__file__).parent), folder=str(tmp_path / "killed"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    whole = cached_activations(small(), backbone, TRANSFORM, UPPER, folder=tmp_path / "whole")
    asked: list[int] = []
    usual = TorchBackend.__call__

    def count(runner: TorchBackend, given: np.ndarray) -> np.ndarray:
        asked.append(len(given))
        return usual(runner, given)

    monkeypatch.setattr(TorchBackend, "__call__", count)
    resumed = cached_activations(small(), backbone, TRANSFORM, UPPER, folder=tmp_path / "killed")
    assert sum(asked) == 150 - 96  # six batches of 16 were noted
    np.testing.assert_allclose(resumed.crops[0].astype(np.float32), whole.crops[0], atol=1e-2)
    assert resumed.readable.all()


@pytest.mark.parametrize("damage", ["cut", "flipped", "readable", "other"])
def test_damaged_entry_is_computed_again(tmp_path: Path, backbone: Backbone, damage: str) -> None:
    cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path)
    entry = next(path for path in tmp_path.iterdir() if path.is_dir())
    file = entry / "activations.npy"
    content = file.read_bytes()
    expected = np.load(file)
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "readable":
        (entry / "readable.npy").write_bytes(b"")
    else:  # the whole content of an entry for other images
        cached_activations(small(21), backbone, TRANSFORM, UPPER, folder=tmp_path / "other")
        other = next(path for path in (tmp_path / "other").iterdir() if path.is_dir())
        for path in other.iterdir():
            shutil.copy(path, entry / path.name)
    with pytest.warns(ProxyhashWarning, match=r"The cached activations in .* are damaged; they are computed again."):
        again = cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path)
    np.testing.assert_array_equal(again.crops[0], expected)


def test_entry_of_another_name_is_not_used(tmp_path: Path, backbone: Backbone) -> None:
    cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path)
    entry = next(path for path in tmp_path.iterdir() if path.is_dir())
    moved = entry.with_name("digits-another")
    entry.rename(moved)
    shape = np.load(moved / "activations.npy").shape
    with pytest.raises(InputError, match="damaged"):
        RowCache(moved, "activations", shape, "float16").read()


def test_size_is_logged_before_anything_is_written(
    tmp_path: Path, backbone: Backbone, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxyhash.models")
    cached_activations(small(150), backbone, TRANSFORM, UPPER, crops=2, folder=tmp_path)
    assert "Activations of 150 images, 2 versions of each take " in caplog.text
    caplog.clear()
    cached_activations(small(150), backbone, TRANSFORM, UPPER, crops=2, folder=tmp_path)
    assert caplog.text == "", "nothing is written"


def test_short_disk_is_refused_before_anything_is_written(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"Activations of 20 images take .* in .*, and 1.0 kB are free: .* fewer stages"):
        cached_activations(small(20), backbone, TRANSFORM, UPPER, folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_disk_that_fills_up_leaves_nothing_behind(
    tmp_path: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = RowCache._write

    def full(self: RowCache, handle: BinaryIO, begun: int, *rest: Any) -> int:
        if begun >= 64:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(self, handle, begun, *rest)

    monkeypatch.setattr(RowCache, "_write", full)
    with pytest.raises(InputError, match=r"Cannot keep activations in .*: no space is left on its disk"):
        cached_activations(small(), backbone, TRANSFORM, UPPER, folder=tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if not path.name.endswith(".lock")] == []


def test_two_processes_fill_an_entry_once(tmp_path: Path, backbone: Backbone) -> None:
    script = KILLED.replace("if fraction > 0.6:", "if False:").format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    both = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
    cached_activations(
        small(), backbone, TRANSFORM, UPPER, folder=tmp_path, progress=lambda *_: pytest.fail("computed again")
    )
    assert PROGRESS not in {path.name for path in tmp_path.rglob("*")}


def test_number_of_stages_out_of_range_is_refused(tmp_path: Path, backbone: Backbone) -> None:
    with pytest.raises(InputError, match="stages"):
        cached_activations(small(5), backbone, TRANSFORM, 99, folder=tmp_path)
