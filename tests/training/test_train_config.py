import math

import pytest

from proxyhash.training.config import OptimConfig
from proxyhash.training.train import TrainConfig
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0."),
        ({"epochs": 2.5}, "epochs must be a whole number, not 2.5."),
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
        TrainConfig(bits)


def test_method_and_settings_are_checked() -> None:
    with pytest.raises(InputError, match=r"There is no method 'shcml'; did you mean shclm\?"):
        TrainConfig((8,), "shcml")
    with pytest.raises(InputError, match=r"Triplet has no setting 'tau'; choose from margin, samples_per_class."):
        TrainConfig((8,), "triplet", {"tau": 3.0})
    assert not TrainConfig((8,)).finetune
    assert TrainConfig((8,), optim=OptimConfig.finetune()).finetune
