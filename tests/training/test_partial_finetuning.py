"""Training of the upper stages of a backbone on cached activations."""

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from proxyhash.data import Dataset, SkippedItems, Split, load_dataset, make_split
from proxyhash.data.images import ArrayImages
from proxyhash.evaluation import mean_average_precision
from proxyhash.evaluation.activations import embed_activations
from proxyhash.experiments import Grid, run_grid
from proxyhash.models import extraction, hasher
from proxyhash.models.backbones import create_backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.hasher import Hasher
from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.training.train import train_hashers
from proxyhash.utils.errors import InputError

OPTIM: dict[str, Any] = {"epochs": 2, "batch_size": 32}
UPPER = 2


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    for module in (extraction, hasher):  # an export takes seconds
        monkeypatch.setattr(module, "is_onnx_available", lambda: False)


def small() -> tuple[Dataset, Split]:
    count = 400
    digits = load_dataset("digits").subset(np.arange(count))
    stored = digits.images.pixels_in_memory(np.arange(count))
    assert stored is not None
    dataset = replace(digits, images=ArrayImages(stored), skipped=SkippedItems())
    return dataset, make_split(dataset)


def config(**changes: Any) -> TrainConfig:
    optim = OptimConfig.partial(**{**OPTIM, **changes.pop("optim", {})})
    return TrainConfig(
        **{"bits": (8, 12), "backbone": "convnet", "finetune": UPPER, "optim": optim, "device": "cpu", **changes}
    )


def weights(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_upper_stages_are_trained_and_lower_ones_stay(ema_decay: float) -> None:
    before = create_backbone("convnet", pretrained=False)
    trained = train_hashers(*small(), config(optim={"ema_decay": ema_decay}))
    assert [each.bits for each in trained] == [8, 12]
    lower, upper = split_stages(trained[0].backbone, UPPER)
    lower_before, upper_before = split_stages(before, UPPER)
    for name, tensor in lower.state_dict().items():
        assert torch.equal(tensor, lower_before.state_dict()[name]), f"{name} is frozen"
    changed = [not torch.equal(tensor, upper_before.state_dict()[name]) for name, tensor in upper.state_dict().items()]
    assert all(changed)
    assert all(parameter.requires_grad for parameter in lower.parameters())


def test_partial_finetuning_beats_the_frozen_network() -> None:
    dataset, split = small()
    found = {}
    for finetune in (False, UPPER):
        optim = OptimConfig.of(finetune, **{**OPTIM, "epochs": 6, "hidden_dim": 0})
        settings = TrainConfig(bits=(8,), backbone="convnet", finetune=finetune, optim=optim, device="cpu")
        (trained,) = train_hashers(dataset, split, settings)
        found[finetune] = trained.metadata["validation"]["map"]
    assert found[UPPER] > found[False] + 0.02


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_pretrained_share_averages_initial_and_trained_weights(ema_decay: float) -> None:
    dataset, split = small()
    none = replace(split, validation=split.validation[:0])  # the last epoch, whatever the average is worth
    before = create_backbone("convnet", pretrained=False).state_dict()
    options = {"ema_decay": ema_decay}
    (trained,), (averaged,) = (
        train_hashers(dataset, none, config(bits=(8,), optim={**options, "pretrained_share": share}))
        for share in (0.0, 0.25)
    )
    for name, tensor in averaged.backbone.state_dict().items():
        if tensor.is_floating_point():
            expected = 0.25 * before[name] + 0.75 * trained.backbone.state_dict()[name]
            torch.testing.assert_close(tensor, expected, msg=name)
    for name, tensor in averaged.head.state_dict().items():
        assert torch.equal(tensor, trained.head.state_dict()[name])


def test_model_is_an_ordinary_hasher(tmp_path: Path) -> None:
    dataset, split = small()
    trained = train_hashers(dataset, split, config(finetune="last"))[1]
    assert trained.metadata["config"]["finetune"] == create_backbone("convnet", pretrained=False).last_stages
    trained.save(tmp_path / "model")
    loaded = Hasher.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.encode(dataset.images), trained.encode(dataset.images))
    upper = trained.metadata["config"]["finetune"]
    by_cache, readable = embed_activations(trained, dataset, upper, split, lambda *_: None)
    needed = np.union1d(split.query, split.database)
    np.testing.assert_allclose(by_cache[needed], trained.embed(dataset.images)[needed], atol=0.02)
    assert readable.all()


@pytest.mark.parametrize("method", ["csq", "dpsh", "adsh", "mdsh", "triplet", "softmax-pq"])
def test_methods_of_each_family_train_upper_stages(method: str) -> None:
    (trained,) = train_hashers(*small(), config(method=method, bits=(16,), optim={"epochs": 1}))
    assert np.isfinite(trained.embed(small()[0].images)).all()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_partial_finetuning as test
from proxyhash.models import extraction, hasher
for module in (extraction, hasher):
    module.is_onnx_available = lambda: False
test.torch.set_num_threads(1)

def progress(work, fraction):
    if work.startswith({work!r}) and fraction >= {at}:
        os.kill(os.getpid(), signal.SIGKILL)

test.train_hashers(*test.small(), test.config(optim={optim!r}), Path({folder!r}), resume={resume}, progress=progress)
"""


@pytest.mark.parametrize(("work", "at"), [("caching", 0.3), ("training", 0.2), ("training", 0.7)])
def test_killed_run_resumes_to_the_same_weights(tmp_path: Path, work: str, at: float) -> None:
    optim = {"ema_decay": 0.5, "cached_crops": 2, "checkpoint_seconds": 1e-6, "pretrained_share": 0.3}
    script = {"tests": str(Path(__file__).parent), "folder": str(tmp_path / "run"), "work": work, "at": at, "optim": optim}
    killed = [sys.executable, "-c", KILLED.format(**script, resume=False)]
    done = subprocess.run(killed, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    expected = train_hashers(*small(), config(optim=optim), tmp_path / "whole")
    has_run = (tmp_path / "run" / "checkpoint.pt").is_file()
    assert has_run == (work == "training")
    resumed = train_hashers(*small(), config(optim=optim), tmp_path / "run", resume=has_run)
    for one, other in zip(resumed, expected, strict=True):
        for name, tensor in weights(other.network).items():
            assert torch.equal(weights(one.network)[name], tensor), name


def test_run_is_not_resumed_with_other_stages(tmp_path: Path) -> None:
    train_hashers(*small(), config(finetune=1), tmp_path / "run")
    with pytest.raises(InputError, match="was started with finetune = 1, not 2"):
        train_hashers(*small(), config(), tmp_path / "run", resume=True)
    whole = TrainConfig(bits=(8, 12), backbone="convnet", finetune=True, optim=OptimConfig.finetune(**OPTIM), device="cpu")
    with pytest.raises(InputError, match=r"was started with .* = 1, not True|was started with"):
        train_hashers(*small(), whole, tmp_path / "run", resume=True)


def test_records_name_the_stages_and_are_found_again(tmp_path: Path) -> None:
    grid = Grid("digits", ("shclm",), (8, 12), backbone="convnet", finetune="last", optim={"epochs": 1})
    records = run_grid(grid, tmp_path)
    assert [record.bits for record in records] == [8, 12]
    stages = create_backbone("convnet", pretrained=False).last_stages
    assert records[0].data["finetune"] == stages
    assert type(records[0].data["finetune"]) is int
    again = run_grid(replace(grid, finetune=stages), tmp_path, report=lambda _: pytest.fail("computed again"))
    assert [record.metrics for record in again] == [record.metrics for record in records]


def test_validation_by_activations_agrees_with_that_of_the_network(tmp_path: Path) -> None:
    grid = Grid("digits", ("shclm",), (16,), backbone="convnet", finetune=UPPER, eval_on="validation", optim={"epochs": 2})
    (record,) = run_grid(grid, tmp_path, models=tmp_path / "models")
    trained = Hasher.load(tmp_path / "models" / record.name)
    dataset = load_dataset("digits")
    codes = trained.encode(dataset.images)
    split = make_split(dataset)
    assert dataset.labels is not None
    labels = dataset.labels.values
    exact = mean_average_precision(
        codes[split.validation],
        labels[split.validation],
        codes[split.validation_database],
        labels[split.validation_database],
    ).value
    assert record.metrics["map"] == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(
    ("finetune", "message"),
    [
        ("most", "finetune takes all, last or a number of upper stages, not 'most'."),
        (0, "finetune takes all, last or a number of upper stages, not 0."),
        (99, "stages"),
    ],
)
def test_wrong_stages_are_refused(finetune: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_hashers(*small(), TrainConfig(bits=(8,), backbone="convnet", finetune=finetune))


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(InputError, match="progressive_resize has no effect on partial fine-tuning"):
        config(optim={"progressive_resize": 0.5})
    with pytest.raises(InputError, match="pretrained_share averages the weights of a backbone that is trained"):
        TrainConfig(optim=OptimConfig.frozen(pretrained_share=0.5))
    with pytest.raises(InputError, match="cached_crops is a setting of partial fine-tuning"):
        TrainConfig(finetune=True, optim=OptimConfig.finetune(cached_crops=2))
