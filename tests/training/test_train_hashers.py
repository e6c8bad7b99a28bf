from dataclasses import replace

import numpy as np
import pytest

from proxyhash.data import load_dataset, make_split
from proxyhash.data.protocols.split import drop_indices
from proxyhash.models.backbones import create_backbone
from proxyhash.training.inputs import resolve_transform


@pytest.mark.parametrize("name", [None, "small"])
def test_transform_of_digits_does_not_flip(name: str | None) -> None:
    digits, backbone = load_dataset("digits"), create_backbone("convnet", pretrained=False)
    assert not resolve_transform(digits, backbone, name=name).flip
    assert resolve_transform(replace(digits, flip_safe=True), backbone, name=name).flip


def test_dropped_indices_are_in_no_part_of_the_split() -> None:
    split = make_split(load_dataset("digits"))
    gone = np.array([split.train[0], split.query[0], split.validation[0]])
    left = drop_indices(split, gone)
    assert [len(left.train), len(left.query), len(left.validation)] == [
        len(split.train) - 1,
        len(split.query) - 1,
        len(split.validation) - 1,
    ]
    assert not np.isin(gone, np.concatenate([left.train, left.query, left.database, left.validation_database])).any()
    assert drop_indices(split, gone[:0]) is split
