"""Published data, where it is at hand: PROXYHASH_DATA names a folder with cifar-100-python/ and corel5k/."""

import os
from pathlib import Path

import pytest

from proxyhash.data import load_dataset, make_split
from proxyhash.data.checks import check_dataset


def real(folder: str) -> Path:
    root = os.environ.get("PROXYHASH_DATA")
    if not root or not (Path(root) / folder).is_dir():
        pytest.skip(f"set PROXYHASH_DATA to a folder that holds {folder}/")
    return Path(root)


def test_cifar100_is_the_published_one_with_its_ten_leaks() -> None:
    data = load_dataset("cifar100", data_dir=real("cifar-100-python"), fetch=False)
    assert (len(data), len(data.split_indices("train")), len(data.split_indices("query"))) == (60_000, 50_000, 10_000)
    assert (data.class_names[0], data.class_names[99]) == ("apple", "worm")
    assert set(data.require_labels().counts()) == {600}
    split = make_split(data)
    report = check_dataset(data, split)
    found = {finding.message: finding for finding in report.findings}
    for where in ("the database", "training"):
        leak = found[f"queries whose picture is also in {where} (a leak)"]
        assert (leak.level, leak.count) == ("warning", 10)
    assert found["pictures that occur again, pixel for pixel"].count == 26
    assert found["pictures that occur with different labels"].count == 17
    assert split.fingerprint() == "2d2bc461ce55344d"


def test_corel5k_is_a_tagged_folder() -> None:
    data = load_dataset(real("corel5k") / "corel5k")
    assert (len(data), data.kind, len(data.class_names)) == (4_999, "tags", 374)
    assert (len(data.split_indices("train")), len(data.split_indices("query"))) == (4_500, 499)
    assert not data.skipped
    split = make_split(data)
    assert (split.protocol, len(split.database), len(split.query)) == ("multi-label", 4_500, 499)
    assert data.images.read(0).shape in {(128, 192, 3), (192, 128, 3)}
