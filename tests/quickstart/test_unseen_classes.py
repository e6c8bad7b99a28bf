"""Evaluation of a quickstart on classes that are held out of training."""

from pathlib import Path

import pytest
import torch

from helpers.images import write_class_folders
from proxyhash.cli.app import main
from proxyhash.experiments import read_records
from proxyhash.models import extraction
from proxyhash.quickstart.config import OutputPaths, QuickstartConfig
from proxyhash.quickstart.pipeline import Pipeline
from proxyhash.quickstart.steps import quickstart_steps
from proxyhash.training.goals import goal_settings
from proxyhash.utils.progress import no_progress

CONFIG = QuickstartConfig(
    "shclm", 16, "convnet", image_size=16, epochs=6, batch_size=16, device="cpu", baselines=("itq",), transfer=True
)
METHOD = goal_settings("new-classes", "head").method


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutputPaths:
    torch.set_num_threads(1)
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(extraction, "is_onnx_available", lambda: False)
    write_class_folders(tmp_path / "photos", {f"class-{number:02}": 12 for number in range(20)})
    return OutputPaths(str(tmp_path / "photos"), tmp_path / "output")


def test_settings_for_new_classes_retrieve_unseen_classes(paths: OutputPaths) -> None:
    pipeline = Pipeline(CONFIG, paths, "photos")
    unseen = pipeline.compare_unseen(no_progress)
    assert list(unseen) == ["itq", "shclm"]
    for_new_classes = pipeline.compare_for_new_classes(no_progress)
    assert list(for_new_classes) == [METHOD]
    assert for_new_classes[METHOD] > 0.9  # five classes: random codes have 0.2


def test_command_of_the_step_does_the_same(paths: OutputPaths) -> None:
    expected = Pipeline(CONFIG, paths, "photos").compare_for_new_classes(no_progress)
    (step,) = [step for step in quickstart_steps(CONFIG, paths) if step.title == "new classes"]
    words = [str(paths.folder / "other") if word == str(paths.results) else word for word in step.command]
    if "--image-size" not in words:
        words += ["--image-size", "16"]
    main(words)
    (record,) = read_records(paths.folder / "other")
    assert record.metrics["map"] == expected[METHOD]


def test_network_from_random_weights_has_no_settings_for_new_classes(paths: OutputPaths) -> None:
    config = QuickstartConfig("shclm", 16, "convnet", finetune=True, baselines=("learned",), transfer=True)
    assert "new classes" not in [step.title for step in quickstart_steps(config, paths)]
