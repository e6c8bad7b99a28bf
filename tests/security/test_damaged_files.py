"""Random damage of every file but the index: an error in one sentence, or the same content, and never anything else."""

import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proxyhash import Hasher, ProxySet
from proxyhash.codes.files import read_code_file
from proxyhash.experiments.records import read_records
from proxyhash.index import Calibration
from proxyhash.models.card import read_metrics
from proxyhash.models.code_shards import read_shard
from proxyhash.models.row_cache import RowCache
from proxyhash.models.storage import read_config
from proxyhash.quickstart.run import RunState
from proxyhash.training.checkpoint import CheckpointManager, read_settings
from proxyhash.utils.errors import InputError, ProxyhashWarning

FILES = Path(__file__).parents[1] / "fixtures" / "release-0.2"
FEATURES = next((FILES / "features").iterdir()).relative_to(FILES)
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)


def plain(value: Any) -> Any:
    """Return content in a form that can be compared, such as lists in place of arrays."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | torch.Tensor):
        return np.asarray(value).tolist()
    return value


def read_calibration(path: Path) -> Any:
    calibration = Calibration.load(path.parent, 8)
    assert calibration is not None
    return calibration.precision, calibration.pairs


def read_proxies(path: Path) -> Any:
    proxies = ProxySet.load(path)
    return proxies.as_dict(), proxies.weights, proxies.quality.nearest_class, proxies.quality.nearest_distance


def read_model(path: Path) -> Any:
    hasher = Hasher.load(path.parent)
    return hasher.encode(PIXELS), hasher.class_names, hasher.metadata, hasher.bits


def read_log(path: Path) -> Any:
    return [entry for _, entry in CheckpointManager(path.parent)._log()]


def read_cache(path: Path) -> Any:
    features = RowCache(path.parent, "features", (12, 256)).read()
    return features.values, features.readable


READERS: dict[str, Callable[[Path], Any]] = {
    "model/config.json": lambda path: read_config(path.parent),
    "model/calibration.json": read_calibration,
    "model/metrics.json": lambda path: read_metrics(path.parent),
    "model/probe.safetensors": read_model,
    "model/model.safetensors": read_model,
    "model/model.onnx": read_model,
    "model/proxies.safetensors": read_proxies,
    "proxies.safetensors": read_proxies,
    "codes.npz": lambda path: asdict(read_code_file(path)),
    "shards/000000-of-000001.npz": lambda path: asdict(read_shard(path)),
    "records/records.jsonl": lambda path: [record.as_dict() for record in read_records(path.parent)],
    "quickstart/quickstart.json": lambda path: RunState.read(path.parent, "data").steps,
    "model.run/settings.json": read_settings,
    "model.run/log.jsonl": read_log,
    "model.run/checkpoint.pt": lambda path: CheckpointManager(path.parent)._read(path.name),
    "model.run/best.pt": lambda path: CheckpointManager(path.parent)._read(path.name),
    f"{FEATURES}/features.npy": read_cache,
    f"{FEATURES}/readable.npy": read_cache,
    f"{FEATURES}/checksums.json": read_cache,
}
MAY_BE_LEFT_OUT: dict[str, Any] = {"records/records.jsonl": [], "model/metrics.json": {}}  # with a warning
CUT_AT_A_LINE = ("model.run/log.jsonl", "records/records.jsonl")  # a file that lacks its last lines is whole


def damage(content: bytes, random: np.random.Generator) -> tuple[str, bytes]:
    """Return one kind of damage: a flipped bit, a cut, or a page of zeros."""
    kind = random.choice(["flip", "flip", "flip", "cut", "zeros"])
    position = int(random.integers(len(content)))
    if kind == "cut":
        return kind, content[:position]
    changed = bytearray(content)
    if kind == "flip":
        changed[position] ^= 1 << int(random.integers(8))
    else:
        changed[position : position + 512] = bytes(len(changed[position : position + 512]))
    return str(kind), bytes(changed)


def check(name: str, tmp_path: Path, count: int, seed: int) -> None:
    top = name.split("/", maxsplit=1)[0]
    if (FILES / top).is_dir():
        shutil.copytree(FILES / top, tmp_path / top)
    else:
        shutil.copy(FILES / top, tmp_path / top)
    path, read, random = tmp_path / name, READERS[name], np.random.default_rng(seed)
    content, expected = path.read_bytes(), repr(plain(read(path)))
    for number in range(count):
        kind, changed = damage(content, random)
        path.write_bytes(changed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ProxyhashWarning)
            try:
                found = read(path)
            except InputError as error:
                assert "\n" not in str(error), (number, str(error))  # noqa: PT017
                continue
        if repr(plain(found)) == expected:
            continue
        if name in CUT_AT_A_LINE and (kind == "cut" or b"\0" in changed):
            assert repr(plain(found))[:-1] in expected or found == [], (number, kind)
            continue
        assert name in MAY_BE_LEFT_OUT, (number, kind)
        assert found == MAY_BE_LEFT_OUT[name], (number, kind)
        assert caught, (number, kind)


@pytest.mark.parametrize("name", READERS)
def test_damage_is_found_before_content_is_used(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 20 if READERS[name] is read_model else 100, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_much_damage_is_found_before_content_is_used(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, 150 if READERS[name] is read_model else 1_000, seed=2)
