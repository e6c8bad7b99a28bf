from pathlib import Path

import pytest

from helpers.small_training import small_trainer
from proxyhash.training.learner import optimizer_for
from proxyhash.training.run_folder import BEST, CHECKPOINT, LOG, SETTINGS, RunFolder, Running
from proxyhash.utils.errors import InputError

ORDER = {"order": {"bits": (8, 16), "plan": {"epochs": 3}}, "protocol": {"seed": 0}}


def test_a_run_with_other_settings_is_not_resumed(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.begin(ORDER, resume=False)
    run.begin(ORDER, resume=True)
    for changed, sentence in (
        ({"order": {"bits": (8, 16), "plan": {"epochs": 4}}, "protocol": {"seed": 0}}, "epochs = 3, not 4"),
        ({"order": {"bits": (8,), "plan": {"epochs": 3}}, "protocol": {"seed": 0}}, r"bits = \[8, 16\], not \[8\]"),
        ({"order": {"bits": (8, 16), "plan": {"epochs": 3}}, "protocol": {"seed": 1}}, "protocol.seed = 0, not 1"),
        ({**ORDER, "device": "cpu"}, "device = None, not cpu"),
    ):
        with pytest.raises(InputError, match=f"was started with {sentence}; resume needs the same settings."):
            run.begin(changed, resume=True)


def test_there_must_be_a_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run to resume in"):
        RunFolder(tmp_path / "absent").begin(ORDER, resume=True)
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(InputError, match=r"settings.json is damaged; start again without --resume."):
        RunFolder(tmp_path).begin(ORDER, resume=True)


def test_a_new_run_forgets_the_old_one(tmp_path: Path) -> None:
    for name in (CHECKPOINT, BEST, LOG):
        (tmp_path / name).write_text("old")
    RunFolder(tmp_path, writes=False).begin(ORDER, resume=False)
    assert len(list(tmp_path.iterdir())) == 3
    RunFolder(tmp_path).begin(ORDER, resume=False)
    assert [file.name for file in tmp_path.iterdir()] == [SETTINGS]


def test_the_log_keeps_what_the_checkpoint_knows(tmp_path: Path) -> None:
    trainer = small_trainer(tmp_path)
    running = Running(trainer.learner, optimizer_for(trainer.learner, trainer.plan))
    running.state.epoch = 2
    run = RunFolder(tmp_path)
    run.save(running)
    for epoch in (1, 2, 3):
        run.log({"epoch": epoch, "map": 0.5})
    with (tmp_path / LOG).open("a") as handle:
        handle.write('{"epoch": 4, "ma')  # killed here
    RunFolder(tmp_path, writes=False).restore(running)
    assert (tmp_path / LOG).read_text().count("\n") == 3
    run.restore(running)
    assert (tmp_path / LOG).read_text() == '{"epoch": 1, "map": 0.5}\n{"epoch": 2, "map": 0.5}\n'
