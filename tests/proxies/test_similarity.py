import numpy as np
import pytest

from proxyhash import InputError, class_mean_similarity, tag_similarity
from proxyhash.proxies.similarity import check_similarity


def test_class_means_by_hand() -> None:
    features = [[0, 0], [2, 0], [4, 0], [1, 3]]
    labels = [0, 0, 1, 2]
    # Means (1, 0), (4, 0), (1, 3): distances 3, 3 and 3 sqrt 2; kappa = 2 + sqrt 2.
    kappa = 2 + np.sqrt(2)
    near, far = np.exp(-9 / (2 * kappa**2)), np.exp(-18 / (2 * kappa**2))
    expected = [[1, near, near], [near, 1, far], [near, far, 1]]
    np.testing.assert_allclose(class_mean_similarity(features, labels), expected)


def test_coinciding_means_have_similarity_one() -> None:
    np.testing.assert_array_equal(class_mean_similarity(np.ones((4, 3)), [0, 1, 2, 2]), np.ones((3, 3)))


def test_tags_by_hand() -> None:
    tags = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]
    # Tag 0 occurs 3 times, tag 1 twice, both together twice; tags 2 and 3 never.
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = 4 / 5
    np.testing.assert_array_equal(tag_similarity(tags), expected)


@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        (np.ones((3, 2)), [0, 1], "do not fit"),
        (np.ones(3), [0, 1, 2], "do not fit"),
        (np.ones((2, 2)), [0, 2], "Class 1 has no example"),
        (np.ones((2, 2)), [0, -1], "from 0 upwards"),
        (np.ones((2, 2)), [0.0, 1.0], "from 0 upwards"),
        (np.full((2, 2), np.nan), [0, 1], "not finite"),
    ],
)
def test_invalid_features_are_errors(features: np.ndarray, labels: list[int], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        class_mean_similarity(features, labels)


@pytest.mark.parametrize("tags", [[[0, 2]], [0, 1], [[0.5, 1]]])
def test_invalid_tags_are_errors(tags: list[int]) -> None:
    with pytest.raises(InputError, match="of 0 and 1"):
        tag_similarity(tags)


@pytest.mark.parametrize(
    ("similarity", "sentence"),
    [
        (np.ones((3, 2)), "square matrix, not one of shape"),
        (np.ones(3), "square matrix"),
        (np.ones((4, 4)), "for 4 classes, but 3 are asked for"),
        (np.array([[1, 2, 3], [0, 1, 2], [0, 0, 1.0]]), "symmetric"),
        (np.full((3, 3), np.inf), "not finite"),
        (np.full((3, 3), 1j), "real numbers"),
        (np.full((3, 3), "x"), "real numbers"),
    ],
)
def test_invalid_similarities_are_errors(similarity: np.ndarray, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_similarity(similarity, 3)


def test_float32_similarity_keeps_its_type() -> None:
    assert check_similarity(np.eye(3, dtype=np.float32), 3).dtype == np.float32
    assert check_similarity([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 3).dtype == np.float64
