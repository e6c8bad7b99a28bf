import math

import pytest

from proxyhash.training.plan import Plan
from proxyhash.training.train import Order
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0."),
        ({"epochs": 2.5}, "epochs must be a whole number, not 2.5."),
        ({"batch": 3}, "batch must be at least 4, not 3."),
        ({"hidden": -1}, "hidden must be at least 0, not -1."),
        ({"seed": -1}, "seed must be at least 0, not -1."),
        ({"rate": 0.0}, "rate must be above 0, not 0.0."),
        ({"rate": math.inf}, "rate must be above 0, not inf."),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds must be above 0"),
        ({"warmup": 1.0}, "warmup must be at least 0 and below 1, not 1.0."),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, not -0.1."),
        ({"ema": math.nan}, "ema must be at least 0 and below 1, not nan."),
        ({"momentum": 1.5}, "momentum must be at least 0 and below 1"),
        ({"growth": 0.0}, "growth must be above 0 and at most 1, not 0.0."),
        ({"growth": math.nan}, "growth must be above 0 and at most 1, not nan."),
        ({"backbone_rate": -1e-3}, "backbone_rate must be 0 or above, not -0.001."),
        ({"weight_decay": math.nan}, "weight_decay must be 0 or above, not nan."),
        ({"clip": -1.0}, "clip must be 0 or above"),
        ({"speed": 3}, "A training plan has no setting speed; it has epochs, batch"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, float], sentence: str) -> None:
    for begin in (Plan.frozen, Plan.finetune):
        with pytest.raises(InputError) as error:
            begin(**changes)
        assert sentence in str(error.value)


def test_nothing_said_changes_nothing() -> None:
    assert Plan.frozen(epochs=None, rate=None) == Plan()
    assert Plan.finetune(epochs=3) == Plan.finetune(epochs=3, batch=None)
    assert Plan.frozen().backbone_rate == 0 < Plan.finetune().backbone_rate
    assert Plan.finetune().hidden == 0 < Plan.frozen().hidden


def test_the_rate_rises_and_falls_to_zero() -> None:
    plan = Plan(warmup=0.2)
    assert [plan.rate_factor(fraction) for fraction in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 0.5, 1, 0.5, 0])
    falling = [plan.rate_factor(0.2 + 0.8 * step / 50) for step in range(51)]
    assert falling == sorted(falling, reverse=True)
    assert Plan(warmup=0.0).rate_factor(0.0) == 1.0


def test_images_grow_evenly_and_are_whole_in_the_last_third() -> None:
    plan = Plan(epochs=12, growth=0.5)
    shares = [plan.image_share(epoch) for epoch in range(12)]
    assert shares == pytest.approx([0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1, 1, 1, 1])
    assert {Plan().image_share(epoch) for epoch in range(12)} == {1.0}


@pytest.mark.parametrize("bits", [(), (0,), (8, 8), (-3, 4)])
def test_lengths_that_make_no_sense_are_refused(bits: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="Code lengths must be different whole numbers from 1 upwards"):
        Order(bits)


def test_an_order_is_checked_before_any_work() -> None:
    with pytest.raises(InputError, match=r"There is no method 'shcml'; did you mean shclm\?"):
        Order((8,), "shcml")
    with pytest.raises(InputError, match=r"Triplet has no setting 'tau'; choose from margin, per_class."):
        Order((8,), "triplet", {"tau": 3.0})
    assert not Order((8,)).finetunes
    assert Order((8,), plan=Plan.finetune()).finetunes
