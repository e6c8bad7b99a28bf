import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import check_grad

from proxyhash import InputError
from proxyhash.proxies import repulsion
from proxyhash.proxies import tammes as module
from proxyhash.proxies.bounds import least_max_cosine
from proxyhash.proxies.geometry import nearest_points, unit_rows
from proxyhash.proxies.tammes import BetaSchedule, anneal_points, spread_points, tammes


def max_cosine(points: np.ndarray) -> float:
    return float(nearest_points(points)[1].max())


@pytest.mark.parametrize(
    ("classes", "dimensions", "optimum"),
    [
        (2, 1, -1),  # two ends
        (3, 2, -1 / 2),  # triangle
        (5, 2, np.cos(2 * np.pi / 5)),  # pentagon
        (4, 3, -1 / 3),  # tetrahedron
        (6, 3, 0),  # octahedron
        (12, 3, 1 / np.sqrt(5)),  # icosahedron
        (10, 16, -1 / 9),  # simplex
        (100, 64, 0),  # inside the cross-polytope's range
        (27, 6, 1 / 4),
        (56, 7, 1 / 3),
        (240, 8, 1 / 2),  # the roots of E8
    ],
)
def test_known_optima_are_found(classes: int, dimensions: int, optimum: float) -> None:
    assert max_cosine(tammes(classes, dimensions)) == pytest.approx(optimum, abs=1e-4)


@given(classes=st.integers(2, 14), dimensions=st.integers(2, 9), seed=st.integers(0, 99))
def test_points_are_unit_vectors_and_never_beat_the_bound(classes: int, dimensions: int, seed: int) -> None:
    points = tammes(classes, dimensions, restarts=1, seed=seed)
    assert points.shape == (classes, dimensions)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    assert max_cosine(points) >= least_max_cosine(classes, dimensions) - 1e-9


def test_the_seed_alone_decides_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STARTS_SHARE_CORES_FROM", 0)  # starts in parallel, as for hundreds of points
    one, two, three = (tammes(25, 4, restarts=3, seed=5, threads=threads) for threads in (1, 2, 3))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(one, tammes(25, 4, restarts=3, seed=6))


def test_many_points_are_spread_the_same_on_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANNEAL_UP_TO", 100)
    monkeypatch.setattr(repulsion, "_PAIRS_AT_ONCE", 10_000)  # several blocks, as for thousands of points
    one, two = (tammes(500, 8, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_spreading_comes_near_to_annealing() -> None:
    start = unit_rows(np.random.default_rng(0).standard_normal((200, 16)))
    annealed = max_cosine(anneal_points(start, BetaSchedule(steps=40)))
    before, after = max_cosine(start), max_cosine(spread_points(start))
    assert before - after > 0.7 * (before - annealed)  # the flow is made for thousands of points


def test_soft_maximum_bounds_the_maximum_and_has_the_right_gradient() -> None:
    points = unit_rows(np.random.default_rng(2).standard_normal((6, 4)))
    value, _ = repulsion.soft_max_cosine(points, 1e4)
    assert max_cosine(points) <= value <= max_cosine(points) + np.log(30) / 1e4

    def objective(flat: np.ndarray) -> float:  # not normalized: the function itself, off the sphere too
        cosines = flat.reshape(6, 4) @ flat.reshape(6, 4).T
        return float(np.log(np.exp(3 * cosines[~np.eye(6, dtype=bool)]).sum()) / 3)

    def gradient(flat: np.ndarray) -> np.ndarray:
        return repulsion.soft_max_cosine(flat.reshape(6, 4), 3.0)[1].ravel()

    assert check_grad(objective, gradient, points.ravel()) < 1e-5


def test_soft_neighbors_by_hand() -> None:
    # A point on the right, one at 60 degrees and one on the left: cosines 1/2, -1/2 and -1.
    points = np.array([[1, 0], [0.5, np.sqrt(0.75)], [-1, 0]])
    near = repulsion.soft_neighbors(points, beta=2.0)
    np.testing.assert_allclose(near.closest, [0.5, 0.5, -0.5])
    np.testing.assert_allclose(near.count, [1 + np.exp(-3), 1 + np.exp(-2), 1 + np.exp(-1)])
    np.testing.assert_allclose(near.center[2], (points[1] + np.exp(-1) * points[0]) / (1 + np.exp(-1)))


def test_progress_increases_to_one() -> None:
    heard: list[float] = []
    tammes(12, 4, restarts=2, progress=lambda _, fraction: heard.append(fraction))
    assert heard == sorted(heard)
    assert heard[-1] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("classes", "dimensions", "cosine"),
    [(75, 16, 0.143), (100, 16, 0.206), (75, 32, 0.051), (100, 32, 0.077), (1000, 64, 0.145)],
)
def test_packings_reach_the_documented_cosines(classes: int, dimensions: int, cosine: float) -> None:
    assert max_cosine(tammes(classes, dimensions)) <= cosine


@pytest.mark.parametrize(("classes", "dimensions", "cosine"), [(750, 64, 0.125), (1000, 32, 0.25), (2, 1, -1), (16, 8, 0)])
def test_algebraic_starts_reach_the_documented_cosines(classes: int, dimensions: int, cosine: float) -> None:
    points = tammes(classes, dimensions, start="algebraic")
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1)
    assert max_cosine(points) <= cosine + 1e-9


def test_polishing_improves_a_code_to_real_points() -> None:
    assert max_cosine(tammes(75, 16, start="algebraic")) < 0.2  # the code itself: 0.25


def test_unknown_starts_are_errors() -> None:
    with pytest.raises(InputError, match="There is no start 'divine'; choose from random, algebraic"):
        tammes(10, 4, start="divine")
    with pytest.raises(InputError, match="only 16 corners in 4 dimensions, too few for 17 points"):
        tammes(17, 4, start="algebraic")


def test_spreading_keeps_fixed_points() -> None:
    start = unit_rows(np.random.default_rng(0).standard_normal((30, 6)))
    found = spread_points(start, fixed=10)
    np.testing.assert_array_equal(found[:10], start[:10])
    assert max_cosine(found[10:]) < max_cosine(start[10:])
