import numpy as np
import pytest
from scipy.stats import pearsonr

from proxyhash.proxies import measure_quality
from proxyhash.proxies.assignment import gain


def test_binary_geometry_by_hand() -> None:
    corners = np.array([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, 1, 1]], dtype=np.float32)
    q = measure_quality(corners)
    assert (q.min_distance, q.nearest_min, q.max_cosine) == (1, 1, 0.5)
    np.testing.assert_array_equal(q.nearest_class, [1, 0, 0])
    np.testing.assert_array_equal(q.nearest_distance, [1, 1, 2])
    assert q.nearest_mean == pytest.approx(4 / 3)
    assert q.bit_balance == 1  # the third bit is always on
    assert q.constant_bits == 1
    assert q.distance_bound == 2  # three words of four bits
    assert q.assignment is None


def test_real_geometry_by_hand() -> None:
    triangle = np.sqrt(2) * np.array([[np.cos(a), np.sin(a)] for a in np.deg2rad([0, 120, 240])])
    q = measure_quality(triangle.astype(np.float32))
    assert q.max_cosine == pytest.approx(-1 / 2, abs=1e-6)
    assert q.min_distance == pytest.approx(1.5, abs=1e-6)  # d (1 - cos) / 2
    assert q.distance_bound == pytest.approx(1.5)  # of the sphere: the triangle is optimal


def test_assignment_numbers_match_their_definitions() -> None:
    random = np.random.default_rng(0)
    half = random.random((12, 12))
    similarity = half + half.T
    corners = np.where(random.random((12, 8)) < 0.5, -1.0, 1.0)
    a = measure_quality(corners, similarity).assignment
    assert a is not None

    above = np.triu_indices(12, k=1)
    cosines = corners @ corners.T / 8
    assert a.objective == pytest.approx(2 * (similarity[above] * (1 - cosines[above])).sum())
    assert a.random == pytest.approx(2 * similarity[above].sum() * (1 - cosines[above].mean()))
    assert a.correlation == pytest.approx(pearsonr(similarity[above], cosines[above]).statistic)
    shuffled = [2 * similarity[above].sum() - gain(similarity, corners, random.permutation(12)) for _ in range(2000)]
    assert a.random == pytest.approx(np.mean(shuffled), rel=1e-2)
    assert a.bound <= min(shuffled)
    assert a.share == pytest.approx((a.random - a.objective) / (a.random - a.bound))


def test_an_equidistant_set_has_no_correlation_and_no_share() -> None:
    hadamard = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], dtype=np.float32)
    half = np.random.default_rng(1).random((4, 4))
    quality = measure_quality(hadamard, half + half.T)
    assert quality.assignment is not None
    assert np.isnan(quality.assignment.correlation)
    assert quality.assignment.share == pytest.approx(0, abs=1e-6)
    assert quality.as_dict()["assignment"]["correlation"] is None
