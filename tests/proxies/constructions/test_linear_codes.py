import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.proxies.bounds.hamming import largest_min_distance
from proxyhash.proxies.constructions.bch import cyclotomic_cosets, trace_code, trace_code_columns
from proxyhash.proxies.constructions.codewords import minimal_distance
from proxyhash.proxies.constructions.column_search import resize_columns, search_columns
from proxyhash.proxies.constructions.linear import (
    add_parity,
    encode_messages,
    griesmer_bound,
    linear_distance,
    shorten,
    word_weights,
)
from proxyhash.proxies.constructions.orbit_search import column_orbits, orbit_columns

# The largest distance of a linear [n, k] code for n from k to 64, exact for k up to 7. Source: A. E. Brouwer's table of
# binary linear codes (the one GUAVA and codetables.de carry), complete there by Baumert and McEliece, "A note on the
# Griesmer bound" (1973), for k up to 6 and van Tilborg, "The smallest length of binary 7-dimensional linear codes with
# prescribed minimum distance" (1981). Where `residual_bound` below does not prove an entry, it is one of
# `PROVED_ELSEWHERE`, and was compared with the lower bound that GUAVA derives.
BEST_LINEAR = {
    3: "1 2 2 3 4 4 4 5 6 6 7 8 8 8 9 10 10 11 12 12 12 13 14 14 15 16 16 16 17 18 18 19 20 20 20 21 22 22 "
    "23 24 24 24 25 26 26 27 28 28 28 29 30 30 31 32 32 32 33 34 34 35 36 36",
    4: "1 2 2 3 4 4 4 5 6 6 7 8 8 8 8 9 10 10 11 12 12 12 13 14 14 15 16 16 16 16 17 18 18 19 20 20 20 21 22 "
    "22 23 24 24 24 24 25 26 26 27 28 28 28 29 30 30 31 32 32 32 32 33",
    5: "1 2 2 2 3 4 4 4 5 6 7 8 8 8 8 9 10 10 11 12 12 12 13 14 14 15 16 16 16 16 16 17 18 18 19 20 20 20 21 "
    "22 22 23 24 24 24 24 25 26 26 27 28 28 28 29 30 30 31 32 32 32",
    6: "1 2 2 2 3 4 4 4 5 6 6 7 8 8 8 8 9 10 10 11 12 12 12 13 14 15 16 16 16 16 16 17 18 18 18 19 20 20 21 "
    "22 22 23 24 24 24 24 25 26 26 27 28 28 28 29 30 30 31 32 32",
    7: "1 2 2 2 3 4 4 4 5 6 6 7 8 8 8 8 9 10 10 11 12 12 12 12 13 14 14 15 16 16 16 16 17 18 18 19 20 20 20 "
    "21 22 22 23 24 24 24 24 24 25 26 26 27 28 28 29 30 31 32",
}
TABLE = {(k + i, k): int(entry) for k, row in BEST_LINEAR.items() for i, entry in enumerate(row.split())}
TABLE |= {(n, k): (n, 2 * n // 3)[k - 1] for k in (1, 2) for n in range(k, 65)}
PROVED_ELSEWHERE = {
    (12, 5), (13, 5), (21, 6), (22, 6), (28, 6), (29, 6), (40, 6), (41, 6), (30, 7), (31, 7), (33, 7), (34, 7), (38, 7),
    (39, 7), (41, 7), (42, 7), (53, 7), (54, 7), (55, 7), (56, 7), (57, 7), (58, 7), (60, 7), (61, 7),
}  # fmt: skip


def residual_bound(n: int, k: int, best: dict[tuple[int, int], int]) -> int:
    """Bound the distance of [n, k] by words of its length, by the residual [n - D, k - 1, ceil(D / 2)] and by shortening."""
    found = min(griesmer_bound(n, k), largest_min_distance(1 << k, n))
    while found > 1:
        length, even = (n, found) if found % 2 == 0 else (n + 1, found + 1)
        if best.get((length - even, k - 1), 0) >= even // 2 and best[n - 1, k - 1] >= found:
            break
        found -= 1
    return found


def test_table_of_best_distances_is_proved_except_for_listed_entries() -> None:
    beyond = {(n, k): residual_bound(n, k, TABLE) for n, k in TABLE if k > 1}
    assert all(beyond[cell] >= TABLE[cell] for cell in beyond)
    assert {cell for cell in beyond if beyond[cell] > TABLE[cell]} <= PROVED_ELSEWHERE


@pytest.mark.parametrize("k", range(1, 8))
def test_the_search_finds_the_best_linear_code_of_every_length(k: int) -> None:
    for n in range(k, 65):
        columns = search_columns(k, n, largest_min_distance(1 << k, n))
        assert len(columns) == n
        assert columns.min() > 0  # no constant bit
        assert linear_distance(columns, k) == TABLE[n, k], (n, k)


def test_long_codes_are_repeated_simplex_codes() -> None:
    assert linear_distance(search_columns(3, 7 * 50, 999), 3) == 4 * 50
    assert linear_distance(search_columns(4, 15 * 20 + 8, 999), 4) == 8 * 20 + 4


some_columns = st.lists(st.integers(1, 31), min_size=5, max_size=20).map(np.array)


@given(columns=some_columns)
def test_weights_are_those_of_the_words(columns: np.ndarray) -> None:
    code = encode_messages(columns, np.arange(32))
    np.testing.assert_array_equal(word_weights(columns, 5), (code == -1).sum(axis=1))
    if linear_distance(columns, 5) > 0:  # the words differ
        assert minimal_distance(code) == linear_distance(columns, 5)


@given(columns=some_columns)
def test_a_parity_bit_makes_an_odd_distance_even(columns: np.ndarray) -> None:
    before, after = linear_distance(columns, 5), linear_distance(add_parity(columns), 5)
    assert after >= before + before % 2
    assert add_parity(columns)[-1] != 0


@given(columns=some_columns, count=st.integers(1, 3))
def test_shortening_keeps_the_words_that_are_zero_there(columns: np.ndarray, count: int) -> None:
    shorter, k = shorten(columns, 5, count)
    code = encode_messages(columns, np.arange(32))
    expected = np.unique(code[(code[:, :count] == 1).all(axis=1)][:, count:], axis=0)
    np.testing.assert_array_equal(np.unique(encode_messages(shorter, np.arange(1 << k)), axis=0), expected)


def test_griesmer_by_hand() -> None:
    assert griesmer_bound(31, 5) == 16  # 16 + 8 + 4 + 2 + 1
    assert griesmer_bound(30, 5) == 15
    assert griesmer_bound(7, 4) == 3  # 3 + 2 + 1 + 1


def test_resizing_takes_and_adds_the_best_columns() -> None:
    simplex = np.arange(1, 16)
    assert linear_distance(resize_columns(simplex, 4, 14), 4) == 7
    assert linear_distance(resize_columns(np.append(simplex, simplex), 4, 15), 4) >= 6
    grown = resize_columns(simplex, 4, 30)
    assert sorted(grown) == sorted([*simplex, *simplex])


def test_orbits_are_closed_and_hold_every_column_once() -> None:
    orbits = column_orbits(6)
    assert sorted(np.concatenate(orbits)) == list(range(1, 64))
    assert len(column_orbits(10)) == 69
    for orbit in orbits:
        assert np.bitwise_xor.reduce(orbit) == 0  # x + gx + g^2 x = 0 for g of order 3


def test_orbit_search_exceeds_the_column_search() -> None:
    columns = orbit_columns(10, 128, 61)
    assert len(columns) == 128
    assert columns.min() > 0
    assert linear_distance(columns, 10) == 60


def test_cosets() -> None:
    assert cyclotomic_cosets(4) == {1: {1, 2, 4, 8}, 3: {3, 6, 9, 12}, 5: {5, 10}, 7: {7, 11, 13, 14}}


@pytest.mark.parametrize(
    ("m", "exponents", "k", "least"),
    [
        (4, (1,), 5, 8),  # first-order Reed-Muller
        (4, (1, 5), 7, 6),  # extended BCH
        (5, (1, 5), 11, 12),
        (6, (1, 9), 10, 28),
        (6, (1, 5, 9), 16, 24),
        (7, (1, 3), 15, 56),
    ],
)
def test_known_trace_codes(m: int, exponents: tuple[int, ...], k: int, least: int) -> None:
    code = trace_code(m, exponents)
    assert (len(code.columns), code.k, code.distance) == (2**m, k, least)
    if k <= 11:
        assert minimal_distance(encode_messages(code.columns, np.arange(1 << k))) == least


@pytest.mark.parametrize(
    ("k", "bits", "least"),
    [(11, 32, 12), (10, 64, 28), (16, 64, 24), (14, 63, 23), (12, 60, 24), (15, 128, 56), (9, 33, 12), (18, 64, 20)],
)
def test_trace_codes_are_shortened_cut_and_lengthened(k: int, bits: int, least: int) -> None:
    columns = trace_code_columns(k, bits, bits)
    assert columns is not None
    assert len(columns) == bits
    assert linear_distance(columns, k) >= least


def test_there_is_no_trace_code_of_too_many_dimensions() -> None:
    assert trace_code_columns(25, 64, 64) is None
