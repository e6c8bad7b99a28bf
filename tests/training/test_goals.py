"""Settings by what a model is to retrieve."""

from pathlib import Path
from typing import Any

import pytest

import proxyhash
from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.training.goals import goal_settings
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize("goal", ["known-classes", "new-classes"])
@pytest.mark.parametrize("finetune", [False, "last", 2, "all"])
def test_every_goal_has_settings_for_whatever_is_trained(goal: str, finetune: Any) -> None:
    config = TrainConfig.from_mapping({"goal": goal, "finetune": finetune})
    assert (config.optim.backbone_lr > 0) == (finetune is not False)
    assert config != TrainConfig.from_mapping({"finetune": finetune})


def test_given_options_override_those_of_the_goal() -> None:
    mapping = {"goal": "new-classes", "method": "shclm:tau=4", "optim": {"lr": 0.1}}
    config = TrainConfig.from_mapping(mapping)
    assert (config.method, config.settings, config.optim.lr) == ("shclm", {"tau": 4}, 0.1)
    assert config.optim.hidden_dim == goal_settings("new-classes", "head").optim["hidden_dim"]
    loss = TrainConfig.from_mapping({"goal": "known-classes", "settings": {"loss": "cosine"}})
    assert loss.settings == {"loss": "cosine"}


def test_goal_is_a_key_of_files(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text('data = "digits"\ngoal = "new-classes"\n')
    config = TrainConfig.from_toml(path)
    assert config == TrainConfig.from_mapping({"data": "digits", "goal": "new-classes"})
    assert TrainConfig.from_mapping(config.to_mapping()) == config


def test_unknown_goal_is_refused() -> None:
    with pytest.raises(InputError, match="for known-classes or for new-classes, not for 'new'"):
        TrainConfig.from_mapping({"goal": "new"})


def test_without_a_goal_the_defaults_stay() -> None:
    config = TrainConfig.from_mapping({})
    assert (config.method, config.settings, config.optim) == ("shclm", {}, OptimConfig.frozen())


def test_train_takes_a_goal() -> None:
    hasher = proxyhash.train("digits", bits=16, backbone="convnet", goal="new-classes", epochs=1)
    recorded = hasher.metadata["config"]
    assert recorded["method"] == goal_settings("new-classes", "head").method.split(":")[0]
    with pytest.raises(InputError, match="known-classes"):
        proxyhash.train("digits", bits=16, goal="everything")
