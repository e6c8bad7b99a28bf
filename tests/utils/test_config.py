from dataclasses import dataclass, field
from typing import Literal

import pytest

from proxyhash.utils.config import from_mapping
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class Optim:
    lr: float = 0.1
    steps: int | None = None


@dataclass(frozen=True)
class Train:
    bits: tuple[int, ...]
    loss: Literal["softmax", "nca"] = "softmax"
    optim: Optim = field(default_factory=Optim)


def test_nested_tables_and_lists_are_converted() -> None:
    assert from_mapping(Train, {"bits": [16, 32], "optim": {"lr": 1}}) == Train((16, 32), optim=Optim(1.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": [8], "los": "nca"}, "Train has no setting 'los'; did you mean loss?"),
        ({"bits": [8], "loss": "mse"}, "Train: loss is one of softmax, nca, not 'mse'."),
        ({"bits": "8"}, "Train: Expected `array`, got `str`"),
        ({}, "Train: Object missing required field `bits`"),
    ],
)
def test_wrong_keys_and_values_are_one_sentence(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        from_mapping(Train, given)
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(("?", "."))
