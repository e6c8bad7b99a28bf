import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from helpers.small_training import BITS, STEPS, TRAIN, RecordingTrainer, digits, small_trainer
from proxyhash.data.images import FileImages
from proxyhash.data.transforms import get_transform
from proxyhash.training.checkpoint import CHECKPOINT, LOG
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import ImageSource
from proxyhash.training.trainer import InterruptHandler, TrainingStoppedError
from proxyhash.utils.errors import InputError
from proxyhash.utils.json_lines import parse_json_line
from proxyhash.utils.random import generator

MODULE = "helpers.small_training"
FROZEN: dict[str, Any] = {"dropout": 0.3, "ema_decay": 0.9}
FINETUNED: dict[str, Any] = {"finetune": True, "backbone_lr": 2e-3, "hidden_dim": 0, "dropout": 0.2, "ema_decay": 0.8}
MOMENTUM: dict[str, Any] = {**FROZEN, "method": "mdsh", "settings": {"pairs_from": 1}}
MOMENTUM_FINETUNED: dict[str, Any] = {**FINETUNED, "method": "mdsh", "settings": {"pairs_from": 1}}
OWN_LR: dict[str, Any] = {**FROZEN, "method": "bhc"}
STEP_COUNT: dict[str, Any] = {**FROZEN, "method": "hashnet"}
CENTERS_REASSIGNED: dict[str, Any] = {**FROZEN, "method": "crh"}
PROXIES_REASSIGNED: dict[str, Any] = {**FROZEN, "method": "shclm", "settings": {"reassign_every": 1}}
SEMANTIC_CENTERS: dict[str, Any] = {**FROZEN, "method": "shc"}
SEVERAL_LENGTHS: dict[str, Any] = {**FROZEN, "method": "nested", "settings": {"base": "shclm", "shortest": 4}}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def stop_at(folder: Path, config: dict[str, Any], stop: str, step: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", MODULE, str(folder), json.dumps(config), "--stop", stop, "--at", str(step)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def same_weights(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(name == other_name and torch.equal(a, b) for (name, a), (other_name, b) in pairs)


def log_of(folder: Path) -> list[dict[str, float]]:
    """Return the log without what a clock measured."""
    entries = [parse_json_line(line) for line in (folder / LOG).read_bytes().splitlines()]
    return [{k: v for k, v in entry.items() if k not in ("images_per_second", "validation_seconds")} for entry in entries]


@pytest.mark.parametrize(
    ("config", "seconds"),
    [(FROZEN, 1e-9), (FINETUNED, 0.05), (MOMENTUM, 1e-9), (OWN_LR, 1e-9), (SEVERAL_LENGTHS, 1e-9),
     *(pytest.param(*each, marks=pytest.mark.slow)
       for each in ((FINETUNED, 1e-9), (FROZEN, 1000.0), (MOMENTUM_FINETUNED, 1e-9), (STEP_COUNT, 1e-9),
                     (CENTERS_REASSIGNED, 1e-9), (PROXIES_REASSIGNED, 1e-9), (SEMANTIC_CENTERS, 1e-9)))],
    ids=["frozen", "fine-tuned", "momentum encoder", "learning rate of a method", "several code lengths",
         "fine-tuned, every step",
         "frozen, only epochs", "fine-tuned momentum encoder", "count of steps", "reassigned centers", "reassigned proxies",
         "centers of predictions"],
)  # fmt: skip
def test_killed_run_resumes_bit_exactly(tmp_path: Path, config: dict[str, Any], seconds: float) -> None:
    whole = small_trainer(tmp_path / "whole", **config).fit()
    step = int(generator(0, "killed at", int(seconds * 1e9)).integers(2, STEPS))
    done = stop_at(tmp_path / "killed", config | {"checkpoint_seconds": seconds}, "SIGKILL", step)
    assert done.returncode == -9
    resumed = small_trainer(tmp_path / "killed", **config, checkpoint_seconds=seconds)
    assert same_weights(resumed.fit(), whole)
    assert len(resumed.losses) <= STEPS - (step - 1 if seconds < 1e-6 else 0)
    assert len(resumed.losses) < STEPS or step <= 5
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "whole")


def test_ctrl_c_saves_between_steps(tmp_path: Path) -> None:
    whole = small_trainer(tmp_path / "whole", **FROZEN).fit()
    done = stop_at(tmp_path / "stopped", FROZEN, "SIGINT", 7)
    assert f"KeyboardInterrupt: the last checkpoint is in {tmp_path / 'stopped'}." in done.stderr
    resumed = small_trainer(tmp_path / "stopped", **FROZEN)
    assert same_weights(resumed.fit(), whole)
    assert len(resumed.losses) == STEPS - 7
    assert log_of(tmp_path / "stopped") == log_of(tmp_path / "whole")


def test_finished_run_takes_no_more_steps(tmp_path: Path) -> None:
    whole = small_trainer(tmp_path).fit()
    again = small_trainer(tmp_path)
    assert same_weights(again.fit(), whole)
    assert again.losses == []
    assert [entry["epoch"] for entry in log_of(tmp_path)] == [1, 2, 3]


def test_weights_of_the_best_epoch_are_used(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, hidden_dim=0)
    judged = iter([0.3, 0.9, 0.5])
    seen = []

    def validate(learner: torch.nn.Module) -> dict[str, float]:
        seen.append({name: tensor.clone() for name, tensor in learner.state_dict().items()})
        return {"map": next(judged)}

    trainer.validate = validate
    used = trainer.fit().state_dict()
    assert all(torch.equal(used[name], tensor) for name, tensor in seen[1].items())
    trainer = small_trainer(tmp_path / "without", hidden_dim=0)
    trainer.validate = None
    used = trainer.fit().state_dict()
    assert all(torch.equal(used[name], tensor) for name, tensor in seen[2].items())


def fail_at(trainer: RecordingTrainer, step: int, failure: torch.Tensor | Exception) -> None:
    """Let the loss of a step be another, or fail."""
    usual = trainer.model.loss

    def loss(*arguments: Any) -> torch.Tensor:
        if len(trainer.losses) == step:
            if isinstance(failure, Exception):
                raise failure
            return usual(*arguments) * failure
        return usual(*arguments)

    trainer.model.loss = loss  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        (torch.tensor(float("nan")), "The loss became nan: start again with a lower learning rate"),
        (
            torch.OutOfMemoryError("CUDA out of memory."),
            "Memory ran out with batches of 32: free some and go on with --resume",
        ),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 1 bytes"),
            "start again with a smaller --batch-size",
        ),
    ],
)
def test_failed_run_raises_one_sentence_and_can_be_resumed(
    tmp_path: Path, failure: torch.Tensor | Exception, sentence: str
) -> None:
    whole = small_trainer(tmp_path / "whole", **FINETUNED).fit()
    trainer = small_trainer(tmp_path / "stopped", **FINETUNED)
    fail_at(trainer, 8, failure)
    with pytest.raises(TrainingStoppedError, match=sentence) as stop:
        trainer.fit()
    assert str(tmp_path / "stopped") in str(stop.value)
    assert "\n" not in str(stop.value)
    assert same_weights(small_trainer(tmp_path / "stopped", **FINETUNED).fit(), whole)


def test_gradient_that_is_not_finite_leaves_the_weights_alone(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, grad_clip=0.0, checkpoint_seconds=1e-9)
    for weights in trainer.model.heads.parameters():
        weights.register_hook(lambda gradient: gradient * (torch.inf if len(trainer.losses) == 3 else 1))
    with pytest.raises(TrainingStoppedError, match="The gradient became"):
        trainer.fit()
    kept = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    assert kept["progress"]["step"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in kept["model"].values())


def test_other_errors_are_not_hidden(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    fail_at(trainer, 1, RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        trainer.fit()


def test_run_with_a_missing_image_names_it_and_resumes(tmp_path: Path) -> None:
    pixels, _ = digits()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    images = ImageSource(
        FileImages(tmp_path, [f"{n}.png" for n in range(len(pixels))]), get_transform("small", 8), OptimConfig()
    )

    def trainer(folder: str) -> RecordingTrainer:
        made = small_trainer(tmp_path / folder, **FINETUNED, epochs=2)
        made.source, made.validate = images, None
        return made

    whole = trainer("whole").fit()
    lost = tmp_path / f"{TRAIN // 2}.png"
    stopped = trainer("stopped")

    def vanish(_: dict[str, float]) -> None:
        """Be gone after the first epoch."""
        lost.rename(tmp_path / "elsewhere")

    stopped.report = vanish
    with pytest.raises(TrainingStoppedError, match=f"{lost} is not there. Put it back and go on with --resume"):
        stopped.fit()
    (tmp_path / "elsewhere").rename(lost)
    assert same_weights(trainer("stopped").fit(), whole)


def test_progress_reports_loss_speed_and_best_map(tmp_path: Path) -> None:
    trainer, heard = small_trainer(tmp_path), []
    trainer.progress = lambda work, fraction: heard.append((work, fraction))
    trainer.fit()
    assert len(heard) == STEPS
    assert heard[0][0].startswith("training: loss ")
    assert heard[0][0].endswith(" images/s")
    assert "best mAP 0." in heard[-1][0]
    assert [fraction for _, fraction in heard] == sorted(fraction for _, fraction in heard)


def test_batches_hold_groups_of_a_class_for_triplets(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, settings={"triplet": 1.0, "samples_per_class": 4}, batch_size=34)
    labels = trainer.train_subset.targets
    for batch in trainer._batches(0):
        assert len(batch) == 32
        assert all(len(set(labels[batch[first : first + 4]].tolist())) == 1 for first in range(0, 32, 4))
    assert [b.tolist() for b in trainer._batches(1)] == [b.tolist() for b in trainer._batches(1)]
    trainer.optim = small_trainer(tmp_path, batch_size=4096).optim
    (whole,) = trainer._batches(0)  # a set smaller than a batch is one batch
    assert len(whole) >= TRAIN


def test_freeze_bn_keeps_the_running_statistics(tmp_path: Path) -> None:
    for frozen in (True, False):
        trainer = small_trainer(tmp_path / str(frozen), **FINETUNED, epochs=1, freeze_bn=frozen)
        before = {name: tensor.clone() for name, tensor in trainer.model.trunk.state_dict().items()}
        after = trainer.fit().trunk.state_dict()
        means = [name for name in before if name.endswith("running_mean")]
        assert len(means) == 3
        assert all(torch.equal(before[name], after[name]) == frozen for name in means)
        assert not any(torch.equal(before[name], after[name]) for name in before if name.endswith("0.weight"))


def test_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    small_trainer(tmp_path, epochs=1).fit()
    file = tmp_path / CHECKPOINT
    good = file.read_bytes()
    weights = torch.load(file, weights_only=True)["model"]["heads.0.layers.0.weight"]
    place = good.index(weights.numpy().tobytes()[:64])
    flipped = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
    for bad in (b"", b"hello", good[: len(good) // 2], flipped):
        file.write_bytes(bad)
        with pytest.raises(InputError, match=r"checkpoint.pt is damaged; start again without --resume."):
            small_trainer(tmp_path, epochs=2).fit()


def test_digits_are_learned(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path, finetune=True, backbone_lr=3e-3, hidden_dim=0, epochs=12, dropout=0.0)
    trainer.fit()
    best = max(entry[f"map_{BITS}"] for entry in log_of(tmp_path))
    assert best > 0.6  # of 160 images; chance is 0.1
    assert trainer.losses[-1] < 0.5 * trainer.losses[0]


@pytest.fixture
def _usual_ctrl_c() -> Iterator[None]:
    """Have Ctrl-C raise, even where these tests were started in the background, which lets it be ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_usual_ctrl_c")
def test_second_ctrl_c_interrupts_at_once() -> None:
    with InterruptHandler() as interruption:
        interruption.raise_if_requested("not yet")
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt, match="at last"):
            interruption.raise_if_requested("at last")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_run_with_mixed_precision_resumes_bit_exactly(tmp_path: Path, precision: str) -> None:
    def trainer(folder: Path) -> RecordingTrainer:
        made = small_trainer(folder, checkpoint_seconds=1e-9)
        made.precision = precision  # type: ignore[assignment]
        return made

    whole = trainer(tmp_path / "whole")
    expected = whole.fit()
    stopped = trainer(tmp_path / "stopped")
    fail_at(stopped, 7, torch.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(TrainingStoppedError):
        stopped.fit()
    resumed = trainer(tmp_path / "stopped")
    assert same_weights(resumed.fit(), expected)
    assert len(resumed.losses) == STEPS - 7
    assert whole.losses != small_losses(tmp_path / "float32")


def small_losses(folder: Path) -> list[float]:
    trainer = small_trainer(folder)
    trainer.fit()
    return trainer.losses
