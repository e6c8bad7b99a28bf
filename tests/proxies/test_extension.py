from pathlib import Path

import numpy as np
import pytest

import proxyhash
from proxyhash import InputError, ProxySet, design_proxies
from proxyhash.proxies import extend_proxies
from proxyhash.proxies.geometry import nearest_points

pytestmark = pytest.mark.filterwarnings("ignore::proxyhash.ProxyhashWarning")


def some_similarity(classes: int) -> np.ndarray:
    half = np.random.default_rng(classes).random((classes, classes))
    return half + half.T


@pytest.mark.parametrize("kind", proxyhash.list_kinds())
def test_extension_keeps_old_proxies_bit_for_bit(kind: str) -> None:
    old = design_proxies(14, 12, kind, some_similarity(14), tammes_restarts=1, rotation_restarts=2)
    new = extend_proxies(old, 5, some_similarity(19))
    np.testing.assert_array_equal(new.weights[:14], old.weights)
    assert (new.classes, new.bits, new.kind, new.seed) == (19, 12, kind, 0)
    assert new.binary == old.binary
    assert len(np.unique(new.weights, axis=0)) == 19
    np.testing.assert_allclose(np.linalg.norm(new.weights, axis=1), np.sqrt(12), rtol=1e-6)
    assert new.quality.assignment is not None
    np.testing.assert_array_equal(extend_proxies(old, 5, some_similarity(19)).weights, new.weights)


@pytest.mark.parametrize(("classes", "bits", "new", "distance"), [(75, 16, 53, 6), (70, 32, 58, 14), (100, 64, 28, 32)])
def test_extension_restores_the_words_of_a_linear_code(classes: int, bits: int, new: int, distance: int) -> None:
    assert extend_proxies(design_proxies(classes, bits, "code"), new).quality.min_distance == distance


def test_new_corners_are_farther_than_random_ones() -> None:
    old = design_proxies(20, 24, "hclm", tammes_restarts=1, rotation_restarts=2)
    new = extend_proxies(old, 6)
    random = np.where(np.random.default_rng(0).random((6, 24)) < 0.5, -1.0, 1.0)
    random_set = np.concatenate((old.weights, random))
    assert new.quality.nearest_distance[20:].min() > 12 * (1 - nearest_points(random_set)[1][20:].max()) + 1


def test_new_points_are_farther_than_random_ones() -> None:
    old = design_proxies(20, 8, "tammes", tammes_restarts=1)
    random_set = np.concatenate((old.weights, np.random.default_rng(0).standard_normal((6, 8), np.float32)))
    assert (
        extend_proxies(old, 6).quality.nearest_distance[20:].min() > 4 * (1 - nearest_points(random_set)[1][20:].max()) + 0.3
    )


def test_new_classes_get_proxies_by_similarity() -> None:
    old = design_proxies(75, 16, "code")
    similarity = some_similarity(100)
    matched, unmatched = extend_proxies(old, 25, similarity), extend_proxies(old, 25)
    assert {row.tobytes() for row in matched.weights} == {row.tobytes() for row in unmatched.weights}
    gains = [np.sum(similarity[75:] * (w.weights[75:] @ w.weights.T)) for w in (matched, unmatched)]
    assert gains[0] > gains[1]


def test_extended_joint_set_keeps_its_min_distance() -> None:
    similarity = some_similarity(30)
    old = design_proxies(24, 16, "joint", similarity[:24, :24], min_distance=5)
    new = extend_proxies(old, 6, similarity)
    assert new.quality.min_distance >= min(5, old.quality.min_distance)


def test_the_last_free_corners_are_found() -> None:
    full = extend_proxies(design_proxies(10, 4, "code"), 6)
    assert len(np.unique(full.weights, axis=0)) == 16


def test_an_extended_set_can_be_saved_and_extended_again(tmp_path: Path) -> None:
    twice = extend_proxies(extend_proxies(design_proxies(10, 16, "code"), 3), 2)
    twice.save(tmp_path / "set.safetensors")
    np.testing.assert_array_equal(ProxySet.load(tmp_path / "set.safetensors").weights, twice.weights)


@pytest.mark.parametrize(
    ("new", "similarity", "sentence"),
    [
        (7, None, "17 classes cannot have different codes of 4 bits, of which 6 are left."),
        (0, None, "new_classes must be at least 1, not 0."),
        (1.5, None, "new_classes must be a whole number, not 1.5."),
        (2, np.ones((10, 10)), "The similarity is for 10 classes, but 12 are asked for."),
    ],
)
def test_invalid_input_is_an_error(new: int, similarity: np.ndarray | None, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        extend_proxies(design_proxies(10, 4, "code"), new, similarity)
    assert str(caught.value) == sentence
