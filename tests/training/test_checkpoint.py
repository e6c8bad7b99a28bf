from pathlib import Path

import pytest
import torch

from helpers.small_training import small_trainer
from proxyhash.training.checkpoint import BEST, CHECKPOINT, LOG, SETTINGS, CheckpointManager, TrainerState
from proxyhash.training.model import build_optimizer
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import dump_json
from proxyhash.utils.json_lines import parse_json_line

PROTOCOL = {"seed": 0, "denominator": "relevant"}
SETTINGS_OF_RUN = {"config": {"bits": (8, 16), "optim": {"epochs": 3}}, "protocol": PROTOCOL}


def test_run_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.start(SETTINGS_OF_RUN, resume=False)
    checkpoints.start(SETTINGS_OF_RUN, resume=True)
    for changed, sentence in (
        ({"config": {"bits": (8, 16), "optim": {"epochs": 4}}, "protocol": PROTOCOL}, "epochs = 3, not 4"),
        ({"config": {"bits": (8,), "optim": {"epochs": 3}}, "protocol": PROTOCOL}, r"bits = \[8, 16\], not \[8\]"),
        (
            {"config": {"bits": (8, 16), "optim": {"epochs": 3}}, "protocol": {**PROTOCOL, "seed": 1}},
            "protocol.seed = 0, not 1",
        ),
        ({**SETTINGS_OF_RUN, "device": "cpu"}, "device = None, not cpu"),
    ):
        with pytest.raises(InputError, match=f"was started with {sentence}; resume needs the same settings."):
            checkpoints.start(changed, resume=True)


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run to resume in"):
        CheckpointManager(tmp_path / "absent").start(SETTINGS_OF_RUN, resume=True)
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(InputError, match=r"settings.json is damaged: .*; start again without --resume."):
        CheckpointManager(tmp_path).start(SETTINGS_OF_RUN, resume=True)


def test_new_run_deletes_the_files_of_the_old_one(tmp_path: Path) -> None:
    for name in (CHECKPOINT, BEST, LOG):
        (tmp_path / name).write_text("old")
    CheckpointManager(tmp_path, can_write=False).start(SETTINGS_OF_RUN, resume=False)
    assert len(list(tmp_path.iterdir())) == 3
    CheckpointManager(tmp_path).start(SETTINGS_OF_RUN, resume=False)
    assert [file.name for file in tmp_path.iterdir()] == [SETTINGS]


def test_restore_drops_log_lines_after_the_checkpoint(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    state = TrainerState(trainer.model, build_optimizer(trainer.model, trainer.optim))
    state.progress.epoch = 2
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.save(state)
    for epoch in (1, 2, 3):
        checkpoints.log_epoch({"epoch": epoch, "map": 0.5})
    with (tmp_path / LOG).open("a") as handle:
        handle.write('{"epoch": 4, "ma')  # killed here
    CheckpointManager(tmp_path, can_write=False).restore(state)
    assert (tmp_path / LOG).read_text().count("\n") == 3
    checkpoints.restore(state)
    lines = (tmp_path / LOG).read_bytes().splitlines()
    assert [parse_json_line(line) for line in lines] == [{"epoch": 1, "map": 0.5}, {"epoch": 2, "map": 0.5}]


def saved_state(folder: Path) -> TrainerState:
    """Return a state whose checkpoint is in a folder."""
    trainer = small_trainer(folder)
    state = TrainerState(trainer.model, build_optimizer(trainer.model, trainer.optim))
    checkpoints = CheckpointManager(folder)
    checkpoints.start(SETTINGS_OF_RUN, resume=False)
    checkpoints.save(state)
    checkpoints.save_best(state.model)
    return state


def test_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    state = saved_state(tmp_path / "one")
    CheckpointManager(tmp_path / "one").restore(state)
    other = CheckpointManager(tmp_path / "other")
    other.start({**SETTINGS_OF_RUN, "protocol": {"seed": 1}}, resume=False)
    for name in (CHECKPOINT, BEST):
        (other.path / name).write_bytes((tmp_path / "one" / name).read_bytes())
    with pytest.raises(InputError, match=r"checkpoint.pt belongs to a run with other settings"):
        other.restore(state)
    with pytest.raises(InputError, match=r"best.pt belongs to a run with other settings"):
        other.load_best(state.model)


def test_files_of_a_later_release_name_it(tmp_path: Path) -> None:
    state = saved_state(tmp_path)
    content = torch.load(tmp_path / CHECKPOINT, weights_only=True)
    torch.save({**content, "format": "proxyhash.run/3", "requires": "0.9"}, tmp_path / CHECKPOINT)
    with pytest.raises(InputError, match=r"checkpoint.pt has the format proxyhash.run/3 and needs proxyhash 0.9 or later"):
        CheckpointManager(tmp_path).restore(state)
    (tmp_path / SETTINGS).write_text(dump_json({"format": "proxyhash.run/3", "requires": "0.9"}))
    with pytest.raises(InputError, match=r"settings.json has the format proxyhash.run/3 and needs proxyhash 0.9 or later"):
        CheckpointManager(tmp_path).start(SETTINGS_OF_RUN, resume=True)


@pytest.mark.parametrize("content", [[1], {}, {"model": 3}, {"model": {}, "optimizer": {}, "ema": None, "progress": {}}])
def test_checkpoint_with_other_content_is_refused(tmp_path: Path, content: object) -> None:
    state = saved_state(tmp_path)
    torch.save(content, tmp_path / CHECKPOINT)
    with pytest.raises(InputError, match=r"checkpoint.pt is damaged; start again without --resume."):
        CheckpointManager(tmp_path).restore(state)


def test_damaged_line_of_the_log_is_refused(tmp_path: Path) -> None:
    state = saved_state(tmp_path)
    checkpoints = CheckpointManager(tmp_path)
    for epoch in (1, 2):
        checkpoints.log_epoch({"epoch": epoch, "map": 0.5})
    (tmp_path / LOG).write_text((tmp_path / LOG).read_text().replace("0.5", "0.9", 1))
    for read in (lambda: checkpoints.best_epoch_metrics(8), lambda: checkpoints.restore(state)):
        with pytest.raises(InputError, match=r"Line 1 of .*log.jsonl is damaged: it does not match its checksum; start"):
            read()


def test_resume_without_a_checkpoint_starts_a_new_log(tmp_path: Path) -> None:
    """The power was lost in the first epoch: its line is torn, and there is no checkpoint yet."""
    trainer = small_trainer(tmp_path)
    state = TrainerState(trainer.model, build_optimizer(trainer.model, trainer.optim))
    (tmp_path / LOG).write_bytes(b'{"epoch": 1, "ma\0\0\0\0\n')
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.restore(state)
    checkpoints.log_epoch({"epoch": 1, "map": 0.5})
    assert checkpoints.best_epoch_metrics(16)["epoch"] == 1
