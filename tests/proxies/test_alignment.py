import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.proxies import alignment
from proxyhash.proxies.alignment import best_rotation, itq_rotation, quantization_error
from proxyhash.proxies.geometry import random_rotation


@given(classes=st.integers(2, 30), bits=st.integers(1, 12), seed=st.integers(0, 99))
def test_error_never_increases_and_the_rotation_is_orthogonal(classes: int, bits: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.standard_normal((classes, bits))
    start = random_rotation(bits, random)

    found = itq_rotation(points, start)

    errors = np.array([quantization_error(points @ start), *found.errors])
    assert (np.diff(errors) <= 1e-9).all()
    assert found.errors[-1] == quantization_error(points @ found.matrix)
    np.testing.assert_allclose(found.matrix @ found.matrix.T, np.eye(bits), atol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(points @ found.matrix, axis=1), np.linalg.norm(points, axis=1), atol=1e-10)


def test_rotated_corners_are_rotated_back() -> None:
    corners = np.array([[x, y] for x in (-1.0, 1.0) for y in (-1.0, 1.0)])
    turn = np.deg2rad(30)
    turned = corners @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    found = itq_rotation(turned, np.eye(2))
    assert found.errors[-1] < 1e-20


def test_rotation_of_chunks_is_that_of_all_points_for_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(4)
    points, start = random.standard_normal((500, 6)), random_rotation(6, random)
    whole = itq_rotation(points, start, 30)
    monkeypatch.setattr(alignment, "_CHUNK_VALUES", 6 * 64)  # eight chunks, the last of 52 rows
    one, three = (itq_rotation(points, start, 30, threads=threads) for threads in (1, 3))
    np.testing.assert_array_equal(one.matrix, three.matrix)
    assert one.errors == three.errors
    np.testing.assert_allclose(one.matrix, whole.matrix, atol=1e-10)
    np.testing.assert_allclose(one.errors, whole.errors)


def test_start_of_least_error_is_kept_for_any_number_of_threads() -> None:
    points = np.random.default_rng(3).standard_normal((20, 8))
    one, two = (best_rotation(points, restarts=6, seed=1, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.matrix, two.matrix)
    single = [best_rotation(points, restarts=count, seed=1).errors[-1] for count in range(1, 7)]
    assert single == sorted(single, reverse=True)
    assert one.errors[-1] == single[-1] < single[0]


def test_quantization_error_by_hand() -> None:
    assert quantization_error(np.array([[0.0, -3.0], [1.0, -1.0]])) == 1 + 4
