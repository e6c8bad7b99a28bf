import math
from pathlib import Path
from typing import Any

import pytest

from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0."),
        ({"epochs": 2.5}, "Expected `int`, got `float` - at `$.epochs`."),
        ({"batch_size": 3}, "batch_size must be at least 4, not 3."),
        ({"hidden_dim": -1}, "hidden_dim must be at least 0, not -1."),
        ({"lr": 0.0}, "lr must be above 0, not 0.0."),
        ({"lr": math.inf}, "lr must be above 0, not inf."),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds must be above 0"),
        ({"warmup": 1.0}, "warmup must be at least 0 and below 1, not 1.0."),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, not -0.1."),
        ({"ema_decay": math.nan}, "ema_decay must be at least 0 and below 1, not nan."),
        ({"bn_momentum": 1.5}, "bn_momentum must be at least 0 and below 1"),
        ({"progressive_resize": 0.0}, "progressive_resize must be above 0 and at most 1, not 0.0."),
        ({"progressive_resize": math.nan}, "progressive_resize must be above 0 and at most 1, not nan."),
        ({"backbone_lr": -1e-3}, "backbone_lr must be 0 or above, not -0.001."),
        ({"weight_decay": math.nan}, "weight_decay must be 0 or above, not nan."),
        ({"grad_clip": -1.0}, "grad_clip must be 0 or above"),
        ({"seed": 3}, "OptimConfig has no setting 'seed'"),
        ({"speed": 3}, "OptimConfig has no setting 'speed'; choose from epochs, batch_size"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, float], sentence: str) -> None:
    for preset in (OptimConfig.frozen, OptimConfig.finetune):
        with pytest.raises(InputError) as error:
            preset(**changes)
        assert sentence in str(error.value)


def test_none_keeps_the_default() -> None:
    assert OptimConfig.frozen(epochs=None, lr=None) == OptimConfig()
    assert OptimConfig.finetune(epochs=3) == OptimConfig.finetune(epochs=3, batch_size=None)
    assert OptimConfig.frozen().backbone_lr == 0 < OptimConfig.finetune().backbone_lr
    assert OptimConfig.finetune().hidden_dim == 0 < OptimConfig.frozen().hidden_dim


def test_lr_rises_and_falls_to_zero() -> None:
    optim = OptimConfig(warmup=0.2)
    assert [optim.lr_factor(fraction) for fraction in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    falling = [optim.lr_factor(0.2 + 0.8 * step / 50) for step in range(51)]
    assert falling == sorted(falling, reverse=True)
    assert OptimConfig(warmup=0.0).lr_factor(0.0) == 1.0


def test_images_grow_linearly_to_the_full_size_of_the_last_third() -> None:
    optim = OptimConfig(epochs=12, progressive_resize=0.5)
    shares = [optim.resize_factor(epoch) for epoch in range(12)]
    assert shares == pytest.approx([0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1, 1, 1, 1])
    assert {OptimConfig().resize_factor(epoch) for epoch in range(12)} == {1.0}


@pytest.mark.parametrize("bits", [(), (0,), (8, 8), (-3, 4)])
def test_invalid_code_lengths_are_refused(bits: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="Code lengths must be different whole numbers from 1 upwards"):
        TrainConfig(bits=bits)


def test_method_and_settings_are_checked() -> None:
    with pytest.raises(InputError, match=r"There is no method 'shcml'; did you mean shclm\?"):
        TrainConfig(method="shcml")
    with pytest.raises(InputError, match=r"Triplet has no setting 'tau'"):
        TrainConfig(method="triplet", settings={"tau": 3.0})


def test_optim_defaults_depend_on_finetune() -> None:
    assert TrainConfig().optim == OptimConfig.frozen()
    assert TrainConfig(finetune=True).optim == OptimConfig.finetune()
    assert TrainConfig.from_mapping({"finetune": True, "optim": {"epochs": 3}}).optim == OptimConfig.finetune(epochs=3)
    for finetune, optim in ((True, OptimConfig.frozen()), (False, OptimConfig.finetune())):
        with pytest.raises(InputError, match="backbone_lr is the learning rate of fine-tuning: above 0 with finetune"):
            TrainConfig(finetune=finetune, optim=optim)


def test_methods_without_a_network_take_no_optim_settings() -> None:
    with pytest.raises(InputError, match="ITQ trains no network, so epochs has no effect"):
        TrainConfig(method="itq", optim=OptimConfig(epochs=3))
    with pytest.raises(InputError, match="ITQ trains no network and cannot be fine-tuned"):
        TrainConfig(method="itq", finetune=True)


def test_toml_file_has_the_keys_of_the_class(tmp_path: Path) -> None:
    path = tmp_path / "train.toml"
    path.write_text('data = "digits"\nbits = [8, 16]\nfold = 1\n[settings]\ntriplet = 1.0\n[optim]\nlr = 1\n')
    config = TrainConfig.from_toml(path)
    assert config == TrainConfig(data="digits", bits=(8, 16), fold=1, settings={"triplet": 1.0}, optim=OptimConfig(lr=1.0))
    assert TrainConfig.from_mapping(config.to_mapping()) == config
    path.write_text("bits = ")
    with pytest.raises(InputError, match=r"train.toml is not a TOML file"):
        TrainConfig.from_toml(path)
    with pytest.raises(InputError, match=r"Cannot read .*absent.toml"):
        TrainConfig.from_toml(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"bit": 8}, "TrainConfig has no setting 'bit'; did you mean bits?"),
        ({"optim": {"epoch": 8}}, "OptimConfig has no setting 'epoch'; did you mean epochs?"),
        ({"optim": {"epochs": 0}}, "epochs must be at least 1, not 0."),
        ({"optim": {"lr": "fast"}}, "OptimConfig: Expected `float`, got `str`"),
        ({"settings": {"tua": 8}}, "has no setting 'tua'; did you mean tau?"),
        ({"bits": "many"}, "TrainConfig: Expected `array`, got `str`"),
        ({"method": "shclm:tau=4", "settings": {"tau": 3}}, "tau is given twice: with the method and by itself."),
        ({"seed": -1}, "seed must be at least 0, not -1."),
    ],
)
def test_wrong_keys_and_values_are_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        TrainConfig.from_mapping(given)
    assert sentence in str(error.value)
