"""Class labels and tags: one interface, the same questions answered for both."""

import numpy as np
import pytest

from proxyhash.labels import UNLABELED, ClassLabels, Labels, TagLabels
from proxyhash.utils.errors import InputError

CLASSES = ClassLabels(np.array([2, 0, UNLABELED, 2]), ("a", "b", "c"))
TAGS = TagLabels(np.array([[1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]], bool), ("x", "y", "z"))
BOTH = pytest.mark.parametrize("labels", [CLASSES, TAGS], ids=["classes", "tags"])


def test_names_are_numbered_in_sorted_order_and_empty_is_unlabeled() -> None:
    labels = ClassLabels.from_names(["b", "", "a", "b"])
    assert (labels.names, labels.values.tolist()) == (("a", "b"), [1, UNLABELED, 0, 1])


@BOTH
def test_one_hot_agrees_with_nonzero_names_and_counts(labels: Labels) -> None:
    encoded = labels.one_hot()
    assert (encoded.shape, encoded.dtype.name) == ((4, 3), "float32")
    for index, expected in zip(np.argwhere(encoded).T, labels.nonzero(), strict=True):
        np.testing.assert_array_equal(index, expected)
    for row in range(4):
        assert labels.names_of(row) == tuple(labels.names[column] for column in np.flatnonzero(encoded[row]))
    np.testing.assert_array_equal(labels.counts(), encoded.sum(0))
    np.testing.assert_array_equal(labels.present_classes(), np.flatnonzero(encoded.any(0)))
    np.testing.assert_array_equal(labels.labeled(), np.flatnonzero(encoded.any(1)))


@BOTH
def test_relevance_is_a_common_class_or_tag(labels: Labels) -> None:
    encoded = labels.one_hot(bool)
    expected = [[(a & b).any() for b in encoded] for a in encoded]
    np.testing.assert_array_equal(labels.relevance(labels), expected)
    database = labels.subset(np.array([1]))
    np.testing.assert_array_equal(labels.has_relevant(database), labels.relevance(database).any(1))


@BOTH
def test_selecting_classes_keeps_their_columns(labels: Labels) -> None:
    chosen = labels.select_classes(np.array([0, 2]))
    assert (chosen.num_classes, chosen.names) == (2, (labels.names[0], labels.names[2]))
    np.testing.assert_array_equal(chosen.one_hot(), labels.one_hot()[:, [0, 2]])


def test_a_class_that_is_not_selected_becomes_unlabeled() -> None:
    assert CLASSES.select_classes(np.array([0, 1])).values.tolist() == [UNLABELED, 0, UNLABELED, UNLABELED]


def test_targets_are_class_numbers_or_zeros_and_ones() -> None:
    assert CLASSES.targets().tolist() == [2, 0, UNLABELED, 2]
    assert (TAGS.targets().dtype.name, TAGS.targets().tolist()) == ("float32", TAGS.values.astype(float).tolist())


def test_labels_of_different_kinds_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="Labels of 3 classes and of 3 tags cannot be compared"):
        CLASSES.relevance(TAGS)
    with pytest.raises(InputError, match="Labels of 3 tags and of 3 classes cannot be compared"):
        TAGS.has_relevant(CLASSES)


@pytest.mark.parametrize("values", [np.array([0.5]), np.array([[1]]), np.array([3]), np.array([-2])])
def test_values_that_do_not_index_the_names_are_refused(values: "np.typing.NDArray[np.int64]") -> None:
    with pytest.raises(InputError, match="Class labels must"):
        ClassLabels(values, ("a", "b", "c"))


def test_tags_of_another_shape_or_type_are_refused() -> None:
    for values in (np.zeros(3, bool), np.zeros((2, 2), bool), np.zeros((2, 3), int)):
        with pytest.raises(InputError, match=r"Tags must be booleans \(N, 3\)"):
            TagLabels(values, ("x", "y", "z"))
