from pathlib import Path

import numpy as np
import pytest

from helpers.datasets import labeled_dataset, tagged_dataset
from helpers.images import smooth_image, write_images
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages, FileImages, Subset, is_in_memory
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError


def test_images_in_memory_must_be_square_bytes() -> None:
    for wrong in (np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 5, 3), np.uint8), np.zeros((2, 4, 4), np.uint8)):
        with pytest.raises(InputError, match="must be bytes"):
            ArrayImages(wrong)  # type: ignore[arg-type]


def test_memory_and_files_give_the_same_images(tmp_path: Path) -> None:
    write_images(tmp_path, ["a.png", "b.png"])
    files = FileImages(tmp_path, ["a.png", "b.png"])
    memory = ArrayImages(np.stack([smooth_image(0), smooth_image(1)]), "x")
    for index in range(2):
        np.testing.assert_array_equal(files.read(index), memory.read(index))
        np.testing.assert_array_equal(files.read_square(index, 7, "cover"), memory.read_square(index, 7, "cover"))
    assert (is_in_memory(memory), is_in_memory(files)) == (True, False)
    assert (memory.key(1), files.key(1)) == ("x-000001", "b.png")


def test_some_images_of_others() -> None:
    memory = ArrayImages(np.stack([smooth_image(seed) for seed in range(5)]))
    some = Subset(Subset(memory, np.array([4, 3, 1])), np.array([2, 0]))
    assert len(some) == 2
    assert [some.key(0), some.key(1)] == ["image-000001", "image-000004"]
    np.testing.assert_array_equal(some.read(1), smooth_image(4))
    np.testing.assert_array_equal(some.read_square(0, 5, "squash"), memory.read_square(1, 5, "squash"))
    stored = some.pixels_in_memory(np.array([1, 0]))
    assert stored is not None
    np.testing.assert_array_equal(stored[0], smooth_image(4))


def test_a_subset_keeps_names_and_follows_its_images() -> None:
    data = labeled_dataset("x", np.array([0, 1, 2, 1, 0]), queries=2).subset(np.array([4, 1]))
    assert data.class_names == ("class0", "class1", "class2")
    assert data.require_labels().values.tolist() == [0, 1]
    assert (data.split_indices("query").tolist(), data.split_indices("train").tolist()) == ([0], [1])


def test_the_most_frequent_tags() -> None:
    tags = np.array([[1, 0, 1], [0, 1, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 1, 1]], bool)
    data = Dataset("x", ArrayImages(np.zeros((6, 1, 1, 3), np.uint8)), TagLabels(tags, ("a", "b", "c")))
    fewer = data.with_frequent_tags(2)
    assert fewer.class_names == ("b", "c")
    assert fewer.require_tags().values.astype(int).tolist() == [[0, 1], [1, 1], [1, 0], [1, 1]]
    for count in (1, 4):
        with pytest.raises(InputError, match=f"x has 3 tags: {count} of them cannot be chosen"):
            data.with_frequent_tags(count)
    with pytest.raises(InputError, match="has no tags"):
        labeled_dataset("x", np.array([0, 1])).with_frequent_tags(2)


def test_labels_of_another_length_than_the_images_are_refused() -> None:
    with pytest.raises(InputError, match="x has 2 images and labels of 3"):
        Dataset("x", ArrayImages(np.zeros((2, 1, 1, 3), np.uint8)), ClassLabels(np.zeros(3, np.int64), ("a",)))


def test_labels_of_the_other_kind_are_refused_where_one_kind_is_needed() -> None:
    with pytest.raises(InputError, match="x has no tags"):
        labeled_dataset("x", np.array([0, 1])).require_tags()
    with pytest.raises(InputError, match="y has no class labels"):
        tagged_dataset("y", 5, 3).require_classes()


def test_problems_are_counted_named_and_copied() -> None:
    problems = SkippedItems()
    assert not problems
    for number in range(7):
        problems.add("kind", f"item {number}")
    copy = problems.copy()
    copy.add("kind", "item 7")
    assert problems.sentences() == ["kind: 7 (item 0; item 1; item 2; item 3; item 4; and 2 more)"]
    assert copy.as_dict() == {"kind": {"count": 8, "examples": [f"item {number}" for number in range(5)]}}
    with pytest.raises(InputError, match="Stopped at the first problem, as asked: kind: item"):
        SkippedItems(strict=True).add("kind", "item")
