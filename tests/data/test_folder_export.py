"""A data set becomes a folder that reads back as the same data set."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proxyhash.data import ArrayImages, ClassLabels, Dataset, TagLabels, load_dataset
from proxyhash.data.folder_export import write_image_folder
from proxyhash.utils.errors import InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
NAMES = ("cats", "dogs")
LABELS = np.array([0, 1, 0, 1, -1, 1])
CLASSES = Dataset("mine", ArrayImages(PIXELS, "image"), ClassLabels(LABELS, NAMES))


def by_name(data: Dataset) -> dict[str, tuple[tuple[str, ...], int, bytes]]:
    return {
        Path(data.images.key(number)).stem: (
            data.labels_of(number),
            int(data.splits[number]),
            data.images.read(number).tobytes(),
        )
        for number in range(len(data))
    }


def test_classes_come_back(tmp_path: Path) -> None:
    assert write_image_folder(CLASSES, tmp_path / "out") == 6
    assert by_name(load_dataset(tmp_path / "out")) == by_name(CLASSES)
    assert (tmp_path / "out" / "cats" / "image-000002.png").is_file()
    assert (tmp_path / "out" / "image-000004.png").is_file()  # without a label


def test_parts_and_tags_come_back(tmp_path: Path) -> None:
    parts = np.array([0, 0, 0, 1, 1, 1], np.int8)
    labeled = replace(CLASSES, labels=ClassLabels(np.array([0, 1, 0, 1, 0, 1]), NAMES), splits=parts)
    write_image_folder(labeled, tmp_path / "parts")
    assert by_name(load_dataset(tmp_path / "parts")) == by_name(labeled)
    tags = np.array([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1]], bool)
    tagged = replace(CLASSES, labels=TagLabels(tags, NAMES), splits=parts)
    write_image_folder(tagged, tmp_path / "tags")
    assert by_name(load_dataset(tmp_path / "tags")) == by_name(tagged)


def test_pixels_become_squares(tmp_path: Path) -> None:
    write_image_folder(CLASSES, tmp_path / "out", enlarge=3)
    written = by_name(load_dataset(tmp_path / "out"))["image-000000"][2]
    large = np.frombuffer(written, np.uint8).reshape(12, 12, 3)
    np.testing.assert_array_equal(large, np.kron(PIXELS[0], np.ones((3, 3, 1), np.uint8)))


def test_nothing_is_overwritten_and_no_path_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(InputError, match="exists already"):
        write_image_folder(CLASSES, tmp_path / "there")
    for name in ("../cats", "", ".hidden", "a\\b"):
        with pytest.raises(InputError, match="cannot be the name of a folder"):
            write_image_folder(replace(CLASSES, labels=ClassLabels(LABELS, (name, "dogs"))), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    write_image_folder(CLASSES, tmp_path / "out")
    with pytest.raises(InputError, match="consists of image files already"):
        write_image_folder(load_dataset(tmp_path / "out"), tmp_path / "again")


def test_a_folder_with_the_name_of_a_data_set_is_a_folder_if_it_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_image_folder(CLASSES, Path("digits"))
    assert len(load_dataset("digits")) == 1797
    assert len(load_dataset(Path("digits"))) == len(load_dataset(f"digits{os.sep}")) == 6
