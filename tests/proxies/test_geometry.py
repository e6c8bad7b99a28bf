import numpy as np
import pytest

from proxyhash.proxies import geometry


def test_nearest_matches_a_full_matrix_even_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).standard_normal((57, 5))
    monkeypatch.setattr(geometry.row_blocks, "__defaults__", (57 * 4,))
    assert len(geometry.row_blocks(57)) == 15

    index, cosine = geometry.nearest_points(points)

    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    full = unit @ unit.T
    np.fill_diagonal(full, -np.inf)
    np.testing.assert_array_equal(index, full.argmax(axis=1))
    np.testing.assert_allclose(cosine, full.max(axis=1))


def test_row_blocks_cover_every_row_once() -> None:
    for rows in (1, 2, 1999, 2000, 2001, 10_000):
        covered = [row for block in geometry.row_blocks(rows) for row in range(block.start, block.stop)]
        assert covered == list(range(rows))


def test_random_rotation_is_orthogonal_and_keeps_distances() -> None:
    random = np.random.default_rng(1)
    rotation = geometry.random_rotation(7, random)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(7), atol=1e-12)
    points = random.standard_normal((9, 7))
    np.testing.assert_allclose((points @ rotation) @ (points @ rotation).T, points @ points.T, atol=1e-12)
