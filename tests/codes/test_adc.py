"""Symbols in packed codes, and distances that are sums of table entries."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.codes import adc, hamming_distances, pack
from proxyhash.codes.adc import pack_subcodes, subcode_bits, table_scorer, unpack_subcodes, weighted_hamming_tables
from proxyhash.evaluation import evaluate, mean_average_precision
from proxyhash.utils.errors import InputError


@given(st.integers(0, 1000), st.integers(1, 8), st.integers(1, 5))
def test_unpack_inverts_pack_for_subcodes(seed: int, each: int, count: int) -> None:
    subcodes = np.random.default_rng(seed).integers(0, 2**each, (7, count))
    packed = pack_subcodes(subcodes, each)
    assert packed.shape == (7, (count * each + 7) // 8)
    np.testing.assert_array_equal(unpack_subcodes(packed, count, each), subcodes)
    assert pack_subcodes(subcodes[:0], each).shape == (0, packed.shape[1])


@given(st.integers(0, 1000), st.integers(1, 40))
def test_equal_weights_give_the_hamming_distance(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    q, db = random.random((5, bits)) < 0.5, pack(random.random((9, bits)) < 0.5)
    np.testing.assert_array_equal(
        table_scorer(weighted_hamming_tables(q, np.ones(bits)), db)(slice(None)), hamming_distances(pack(q), db)
    )


@given(st.integers(0, 1000), st.sampled_from([1, 3, 8]))
def test_distances_are_sums_of_table_entries(seed: int, each: int) -> None:
    random = np.random.default_rng(seed)
    entries, subcodes = random.standard_normal((4, 3, 2**each)).astype(np.float32), random.integers(0, 2**each, (6, 3))
    expected = [[sum(table[part, item[part]] for part in range(3)) for item in subcodes] for table in entries]
    np.testing.assert_allclose(table_scorer(entries, pack_subcodes(subcodes, each))(slice(None)), expected, atol=1e-5)


def test_metrics_of_equal_weights_equal_those_of_the_hamming_distance() -> None:
    random = np.random.default_rng(0)
    q, db, labels = random.random((20, 16)) < 0.5, pack(random.random((50, 16)) < 0.5), np.arange(50) % 3
    weighted = weighted_hamming_tables(q, np.full(16, 0.5))
    by_tables = evaluate(weighted, labels[:20], db, labels, top=30)
    by_bits = evaluate(pack(q), labels[:20], db, labels, top=30)
    assert "real distances" in by_tables[0].name
    assert len(by_bits) == len(by_tables) + 2  # real distances have no radius
    for ours, theirs in zip(by_tables, by_bits[: len(by_tables)], strict=True):
        np.testing.assert_allclose(ours.per_query, theirs.per_query)
    alone = mean_average_precision(weighted, labels[:20], db, labels, 30)
    np.testing.assert_allclose(alone.per_query, by_bits[0].per_query)


@pytest.mark.parametrize(
    ("given_tables", "weights", "sentence"),
    [
        (np.zeros((2, 3, 5)), None, "with 2, 4, ... or 256 values"),
        (np.full((2, 16, 2), np.nan), None, "must be finite"),
        (np.zeros((2, 5, 16)), None, "Tables for 20 bits do not fit a database of 2 bytes a code"),
        (np.zeros((2, 16, 2)), np.ones(16), "give no bit weights with them"),
    ],
)
def test_tables_of_wrong_shape_are_errors(given_tables: np.ndarray, weights: np.ndarray | None, sentence: str) -> None:
    codes = np.zeros((4, 2), np.uint8)
    with pytest.raises(InputError, match=sentence):
        mean_average_precision(given_tables, np.zeros(2), codes, np.zeros(4), bit_weights=weights)


def test_every_code_length_is_divided_into_whole_subcodes() -> None:
    assert doctest.testmod(adc).failed == 0
    assert all(bits % subcode_bits(bits) == 0 for bits in range(1, 129))
