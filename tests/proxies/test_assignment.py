from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash import InputError
from proxyhash.proxies.assignment import SOLVERS, assign, best_swaps, gain
from proxyhash.proxies.bounds.assignment import correlation_bound, largest_gain, projection_bound, rearrangement_bound
from proxyhash.proxies.geometry import unit_rows


def instance(classes: int, bits: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    half = random.random((classes, classes))
    return half + half.T, np.where(random.random((classes, bits)) < 0.5, -1.0, 1.0)


def test_gain_by_hand() -> None:
    similarity = np.array([[9.0, 1, 0], [1, 9, 2], [0, 2, 9]])
    corners = np.array([[1.0, 1], [1, -1], [-1, -1]])  # cosines 0 (0, 1), -1 (0, 2), 0 (1, 2)
    assert gain(similarity, corners) == pytest.approx(0)
    assert gain(similarity, corners, np.array([0, 2, 1])) == pytest.approx(2 * 1 * -1)


@pytest.mark.parametrize("solver", SOLVERS)
@given(classes=st.integers(2, 12), bits=st.integers(1, 8), seed=st.integers(0, 99))
def test_every_solver_returns_a_permutation_no_worse_than_its_start(solver: str, classes: int, bits: int, seed: int) -> None:
    similarity, corners = instance(classes, bits, seed)
    start = np.random.default_rng(seed).permutation(classes)
    found = assign(similarity, corners, solver=solver, start=start, seed=seed)
    assert sorted(found) == list(range(classes))
    assert gain(similarity, corners, found) >= gain(similarity, corners, start) - 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_annealing_finds_the_optimum_of_small_problems_and_no_bound_is_below_it(seed: int) -> None:
    similarity, corners = instance(7, 5, seed)
    optimum = max(gain(similarity, corners, np.array(order)) for order in permutations(range(7)))
    assert gain(similarity, corners, assign(similarity, corners)) == pytest.approx(optimum)
    unit = unit_rows(corners)
    for bound in (correlation_bound, rearrangement_bound, projection_bound, largest_gain):
        assert bound(similarity, unit) >= optimum - 1e-9


def test_greedy_takes_the_best_swap_first_and_stops_where_no_swap_gains() -> None:
    similarity, corners = instance(15, 8, 1)
    np.fill_diagonal(similarity, 0)
    unit = unit_rows(corners)
    order = np.arange(15)
    while True:  # the same, by trying every swap
        swaps = []
        for p in range(15):
            for q in range(p):
                swapped = order.copy()
                swapped[[p, q]] = swapped[[q, p]]
                swaps.append((gain(similarity, unit, swapped), p, q))
        best, p, q = max(swaps)
        if best <= gain(similarity, unit, order) + 1e-9:
            break
        order[[p, q]] = order[[q, p]]
    np.testing.assert_array_equal(best_swaps(similarity, unit, np.arange(15)), order)


def test_annealing_beats_greedy_and_is_the_same_on_any_number_of_threads() -> None:
    similarity, corners = instance(60, 16, 3)
    one, two = (assign(similarity, corners, seed=4, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    greedy = assign(similarity, corners, solver="greedy", seed=4)
    assert gain(similarity, corners, one) > gain(similarity, corners, greedy)


def test_the_diagonal_of_the_similarity_does_not_matter() -> None:
    similarity, corners = instance(20, 8, 5)
    other = similarity + np.diag(np.arange(20.0))
    np.testing.assert_array_equal(assign(similarity, corners), assign(other, corners))
    assert gain(similarity, corners) == pytest.approx(gain(other, corners))


def test_single_precision_similarities_work() -> None:
    similarity, corners = instance(20, 8, 6)
    for solver in SOLVERS:
        found = assign(similarity.astype(np.float32), corners, solver=solver)
        assert sorted(found) == list(range(20))


def test_an_unknown_solver_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="choose from greedy, anneal, faq"):
        assign(np.eye(3), np.eye(3), solver="magic")
