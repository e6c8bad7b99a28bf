import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.constructions import best_code, minimal_distance
from proxyhash.proxies.constructions.best import anneal_code
from proxyhash.proxies.constructions.codewords import balance_bits, bit_imbalance, choose_balanced_rows, shuffle_code
from proxyhash.proxies.constructions.completion import affine_hull, complete_code, farthest_first

TARGETS = {
    (10, 16): 8, (10, 24): 12, (10, 32): 17, (10, 48): 26, (21, 16): 8, (21, 32): 16, (21, 48): 24, (75, 16): 6,
    (75, 32): 14, (100, 16): 6, (100, 32): 14, (100, 64): 32, (750, 64): 28, (1000, 32): 12, (1000, 64): 28, (1000, 128): 60,
}  # fmt: skip


def slow_distance(code: np.ndarray) -> int:
    products = code.astype(int) @ code.T
    np.fill_diagonal(products, -code.shape[1])
    return int((code.shape[1] - products.max()) // 2)


@pytest.mark.parametrize(("size", "least"), TARGETS.items())
def test_codes_reach_the_documented_distances(size: tuple[int, int], least: int) -> None:
    code = best_code(*size)
    assert code.shape == size
    assert (np.abs(code) == 1).all()
    assert slow_distance(code) == minimal_distance(code) >= least
    assert bit_imbalance(code) <= (0.10 if size[0] >= 75 else 0.45)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "least"), [((10_000, 64), 24), ((21_841, 128), 56)])
def test_codes_of_many_classes_reach_the_documented_distances(size: tuple[int, int], least: int) -> None:
    code = best_code(*size)
    assert minimal_distance(code) >= least
    assert bit_imbalance(code) <= 0.10


@given(bits=st.integers(1, 24), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_any_number_of_classes_fits(bits: int, share: float, seed: int) -> None:
    classes = max(2, round(min(2**bits, 300) ** share))
    code = best_code(classes, bits, seed)
    assert code.shape == (classes, bits)
    assert 1 <= minimal_distance(code) <= largest_min_distance(classes, bits)
    assert bit_imbalance(code) < 1  # no constant bit


def test_seed_changes_the_code_but_not_its_distance() -> None:
    one, two, other = best_code(40, 20, 1), best_code(40, 20, 1), best_code(40, 20, 2)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    assert minimal_distance(one) == minimal_distance(other)


def test_annealing_exceeds_the_distance_of_linear_codes() -> None:
    assert minimal_distance(best_code(20, 9)) == 4  # Golay's (9, 20, 4); linear codes of 32 words reach 3
    assert minimal_distance(best_code(18, 8)) == 3


def test_annealing_keeps_a_code_it_cannot_improve() -> None:
    code = best_code(16, 8)
    assert anneal_code(code, 4, 5) is code  # A(8, 5) = 4


def test_minimal_distance_of_any_width() -> None:
    random = np.random.default_rng(0)
    for bits in (3, 8, 17, 64, 65, 130):
        code = np.where(random.random((6, bits)) < 0.5, -1, 1).astype(np.int8)
        assert minimal_distance(code) == slow_distance(code)


def test_chosen_words_are_balanced() -> None:
    code = np.array(np.meshgrid(*[(-1, 1)] * 8, indexing="ij"), np.int8).reshape(8, -1).T
    rows = choose_balanced_rows(code, 40, np.random.default_rng(0))
    assert len(set(rows)) == 40
    assert bit_imbalance(code[rows]) <= 0.05


def test_balancing_bits_keeps_the_distance() -> None:
    code = np.ones((4, 9), np.int8)
    code[1, :3] = code[2, 3:6] = code[3, 6:] = -1  # every bit is set in one word; distances 3 and 6
    even = balance_bits(code, 2)
    assert minimal_distance(even) >= 2
    assert np.abs(even.mean(axis=0)).sum() < np.abs(code.mean(axis=0)).sum()


def test_shuffling_a_code_keeps_all_distances() -> None:
    code = best_code(12, 10)
    moved = shuffle_code(code, np.random.default_rng(1))
    before, after = (np.sort(np.ravel(c.astype(int) @ c.T)) for c in (code, moved))
    np.testing.assert_array_equal(before, after)


def test_the_affine_hull_of_part_of_a_linear_code_is_the_code() -> None:
    code = best_code(128, 16)
    hull = affine_hull(code[:70].astype(np.float32))
    assert {row.tobytes() for row in hull.astype(np.int8)} == {row.tobytes() for row in code}


def test_farthest_first_by_hand() -> None:
    old = np.array([[1, 1, 1, 1]], np.float32)
    candidates = np.array([[1, 1, 1, -1], [-1, -1, -1, -1], [-1, -1, 1, 1], [-1, -1, -1, 1]], np.float32)
    np.testing.assert_array_equal(farthest_first(old, candidates, 2), candidates[[1, 2]])


def test_completion_uses_the_last_unused_words() -> None:
    cube = np.array(np.meshgrid(*[(-1, 1)] * 4, indexing="ij"), np.float32).reshape(4, -1).T
    found = complete_code(cube[:11], 5, np.random.default_rng(0))
    assert len(np.unique(np.concatenate((cube[:11], found)), axis=0)) == 16
