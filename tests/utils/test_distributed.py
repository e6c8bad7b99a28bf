"""Two real processes (gloo) against one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.small_training import STEPS, RecordingSource, small_trainer
from proxyhash.training.checkpoint import BEST, CHECKPOINT, LOG
from proxyhash.utils.distributed import DistributedContext

MODULE = "helpers.small_training"
CONFIGS: dict[str, dict[str, Any]] = {
    "proxies": {"hidden_dim": 0, "dropout": 0.0},
    "joint with triplets": {"hidden_dim": 0, "dropout": 0.0, "settings": {"triplet": 1.0}},
    "learned proxies": {"hidden_dim": 0, "dropout": 0.0, "method": "learned", "ema_decay": 0.9},
    "momentum encoder": {
        "hidden_dim": 0, "dropout": 0.0, "method": "mdsh", "settings": {"batch_norm": False, "pairs_from": 1}
    },
    "fine-tuned, statistics frozen": {
        "finetune": True, "backbone_lr": 1e-3, "hidden_dim": 0, "dropout": 0.0, "freeze_bn": True, "batch_size": 33
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train every configuration with two processes."""
    folder = tmp_path_factory.mktemp("two")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", MODULE, str(folder), *map(json.dumps, CONFIGS.values())], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_two_processes_take_the_steps_of_one(name: str, folder: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    number = list(CONFIGS).index(name)
    one = small_trainer(tmp_path, **CONFIGS[name])
    weights = one.fit().state_dict()
    first, second = (torch.load(folder / f"{number}-{rank}.pt", weights_only=True) for rank in (0, 1))

    assert len(one.losses) >= STEPS - 3
    assert first["losses"] == pytest.approx(one.losses, abs=1e-5)
    assert second["losses"] == first["losses"]
    moved = [key for key in weights if weights[key].is_floating_point()]
    assert {"objectives.0.bank" if name == "momentum encoder" else "objectives.0.weights", "heads.0.layers.0.weight"} <= set(
        moved
    )
    for key in moved:
        assert torch.allclose(first["weights"][key], weights[key], atol=2e-5), key
        assert torch.equal(first["weights"][key], second["weights"][key])

    assert isinstance(one.source, RecordingSource)
    for whole, ours, theirs in zip(one.source.given, first["given"], second["given"], strict=True):
        assert sorted(ours + theirs) == sorted(whole)
        assert abs(len(ours) - len(theirs)) <= 1


def test_one_process_writes(folder: Path) -> None:
    for number in range(len(CONFIGS)):
        lines = (folder / str(number) / LOG).read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [1, 2, 3]
        assert {file.name for file in (folder / str(number)).iterdir()} == {BEST, CHECKPOINT, LOG}


def test_shares_are_everything_and_nothing_twice() -> None:
    for count in (1, 2, 7, 32):
        for world in (1, 2, 3, 5):
            items = list(range(count))
            shared = [item for rank in range(world) for item in items[DistributedContext(rank, world).shard(count)]]
            assert sorted(shared) == items


def test_alone_nothing_is_exchanged() -> None:
    rows, alone = torch.ones(3, 2), DistributedContext()
    assert alone.all_gather(rows, 3) is rows
    assert alone.main_process_first(lambda: 5) == 5
    weights = torch.nn.Parameter(torch.ones(2))
    weights.grad = torch.full((2,), 3.0)
    alone.sum_gradients([weights])
    alone.average_gradients([weights])
    assert weights.grad.tolist() == [3.0, 3.0]


@pytest.mark.slow
def test_the_same_command_runs_under_torchrun(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("proxyhash")),
        "train",
        "digits",
        "--backbone",
        "convnet",
        "--finetune",
        "all",
    ]
    options = ["--bits", "8", "--epochs", "2", "--triplet", "1", "--dropout", "0", "-o", str(tmp_path / "model")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    done = subprocess.run(
        [*launch, *command, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PROXYHASH_CACHE": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 2/2") == 1
    assert done.stdout.count("Saved") == 1
    assert (tmp_path / "model" / "config.json").is_file()
    assert len((tmp_path / "model.run" / LOG).read_text().splitlines()) == 2
