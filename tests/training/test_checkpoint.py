from pathlib import Path

import pytest

from helpers.small_training import small_trainer
from proxyhash.training.checkpoint import BEST, CHECKPOINT, LOG, SETTINGS, CheckpointManager, TrainerState
from proxyhash.training.model import build_optimizer
from proxyhash.utils.errors import InputError

SETTINGS_OF_RUN = {"config": {"bits": (8, 16), "optim": {"epochs": 3}}, "protocol": {"seed": 0}}


def test_run_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path)
    checkpoints.start(SETTINGS_OF_RUN, resume=False)
    checkpoints.start(SETTINGS_OF_RUN, resume=True)
    for changed, sentence in (
        ({"config": {"bits": (8, 16), "optim": {"epochs": 4}}, "protocol": {"seed": 0}}, "epochs = 3, not 4"),
        ({"config": {"bits": (8,), "optim": {"epochs": 3}}, "protocol": {"seed": 0}}, r"bits = \[8, 16\], not \[8\]"),
        ({"config": {"bits": (8, 16), "optim": {"epochs": 3}}, "protocol": {"seed": 1}}, "protocol.seed = 0, not 1"),
        ({**SETTINGS_OF_RUN, "device": "cpu"}, "device = None, not cpu"),
    ):
        with pytest.raises(InputError, match=f"was started with {sentence}; resume needs the same settings."):
            checkpoints.start(changed, resume=True)


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run to resume in"):
        CheckpointManager(tmp_path / "absent").start(SETTINGS_OF_RUN, resume=True)
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(InputError, match=r"settings.json is damaged; start again without --resume."):
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
    assert (tmp_path / LOG).read_text() == '{"epoch": 1, "map": 0.5}\n{"epoch": 2, "map": 0.5}\n'
