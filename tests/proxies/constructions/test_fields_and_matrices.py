import numpy as np
import pytest

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.constructions.codewords import minimal_distance
from proxyhash.proxies.constructions.field import difference, generator_powers, prime_power, quadratic_character
from proxyhash.proxies.constructions.hadamard import (
    biorthogonal_code,
    biorthogonal_codes,
    hadamard,
    levenshtein_blocks,
    plotkin_codes,
    shortened_code,
    simplex_code,
)

WITHOUT_A_CONSTRUCTION = {92, 116, 156, 172, 184, 188, 232, 236}


def test_prime_powers() -> None:
    found = {size: prime_power(size) for size in (1, 2, 6, 7, 8, 9, 12, 25, 27, 100, 243)}
    assert found == {
        1: None, 2: (2, 1), 6: None, 7: (7, 1), 8: (2, 3), 9: (3, 2), 12: None, 25: (5, 2), 27: (3, 3), 100: None,
        243: (3, 5),
    }  # fmt: skip


@pytest.mark.parametrize(("p", "m"), [(2, 1), (3, 1), (7, 1), (2, 4), (2, 7), (3, 2), (5, 2), (3, 3)])
def test_a_generator_visits_every_element_but_zero(p: int, m: int) -> None:
    powers = generator_powers(p, m)
    assert sorted(powers) == list(range(1, p**m))
    assert powers[0] == 1


def test_arithmetic_by_hand() -> None:
    # In GF(9), number 5 is 2 + x and number 7 is 1 + 2 x: (2 + x) - (1 + 2 x) = 1 - x = 1 + 2 x.
    assert difference(np.array(5), np.array(7), 3, 2) == 7
    np.testing.assert_array_equal(quadratic_character(7, 1), [0, 1, 1, -1, 1, -1, -1])  # squares modulo 7: 1, 2, 4


@pytest.mark.parametrize("order", [1, 2, *range(4, 257, 4)])
def test_hadamard_matrices_are_orthogonal_and_normalized(order: int) -> None:
    matrix = hadamard(order)
    if order in WITHOUT_A_CONSTRUCTION:
        assert matrix is None
        return
    assert matrix is not None
    np.testing.assert_array_equal(matrix.astype(int) @ matrix.T, order * np.eye(order))
    assert (matrix[0] == 1).all()
    assert (matrix[:, 0] == 1).all()


def test_there_is_no_hadamard_matrix_of_another_order() -> None:
    assert [hadamard(order) for order in (3, 5, 6, 10, 14, 30)] == [None] * 6


@pytest.mark.parametrize("order", [4, 12, 28, 52, 64])
def test_codes_of_a_hadamard_matrix(order: int) -> None:
    for code, shape in (
        (simplex_code(order), (order, order - 1)),
        (shortened_code(order), (order // 2, order - 2)),
        (biorthogonal_code(order), (2 * order, order)),
    ):
        assert code is not None
        assert code.shape == shape
        assert minimal_distance(code) == order // 2


def test_levenshtein_s_codes_meet_plotkin_s_bound() -> None:
    for classes in (2, 3, 4, 5, 6, 10, 17, 21, 40):
        for bits in range(2, 65):
            bound = largest_min_distance(min(classes, 2**bits), bits)
            if 2 * bound <= bits or classes > 2**bits:
                continue
            blocks = next(plotkin_codes(classes, bits))
            code = np.concatenate([block[:classes] for block in blocks], axis=1)
            assert code.shape == (classes, bits)
            assert minimal_distance(code) == bound


def test_levenshtein_by_hand() -> None:
    # 10 words of 32 bits at distance 17 are those of 33 bits at distance 18 without a bit: k = 6, a = 3, b = 0.
    blocks = levenshtein_blocks(12, 33, 18)
    assert blocks is not None
    assert [block.shape for block in blocks] == [(12, 11)] * 3


def test_each_bit_cut_from_a_hadamard_code_costs_one_of_distance() -> None:
    for bits, distance in ((44, 22), (43, 21), (42, 20)):
        code = next(biorthogonal_codes(80, bits))
        assert code.shape == (88, bits)
        assert minimal_distance(code) == distance
