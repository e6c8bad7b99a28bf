import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash import codes
from proxyhash.codes import kernels
from proxyhash.codes.bits import to_words
from proxyhash.codes.bitsliced import bit_planes
from proxyhash.codes.bitsliced import kernels as bitsliced
from proxyhash.codes.bitsliced.llvm_ops import BLOCK

MANY = 60  # queries: enough for planes


def some_codes(count: int, width: int, seed: int, tied: bool) -> np.ndarray:
    """Packed codes; tied ones use few values, so that most distances occur many times."""
    return np.random.default_rng(seed).integers(0, 4 if tied else 256, (count, width), dtype=np.uint8)


def opposites(items: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries among the items and opposite to them: distances 0 and 64 occur."""
    db = some_codes(items, 8, 5, tied=False)
    return np.concatenate([db[: MANY // 2], ~db[: MANY // 2]]), db


@given(width=st.integers(1, 8), items=st.integers(1, 600), seed=st.integers(0, 9), tied=st.booleans(), k=st.integers(1, 30))
def test_top_k_and_histograms_equal_the_reference(width: int, items: int, seed: int, tied: bool, k: int) -> None:
    q, db = some_codes(MANY, width, seed, tied), some_codes(items, width, seed + 1, tied)
    assert bitsliced.is_faster(to_words(q).T, to_words(db))
    found = codes.top_k(q, db, k, threads=2)
    near, position = hamming_reference.top_k(q, db, k)
    np.testing.assert_array_equal(found.distances, near)
    np.testing.assert_array_equal(found.indices, position)
    np.testing.assert_array_equal(codes.distance_histograms(q, db, threads=2), hamming_reference.histograms(q, db))


@pytest.mark.parametrize(
    "items", [BLOCK, 2 * bitsliced.STACK_ITEMS, 2 * bitsliced.STACK_ITEMS + 1, 5 * bitsliced.STACK_ITEMS + 777]
)
@pytest.mark.parametrize("kind", ["random", "tied", "opposite", "even"])
def test_histograms_of_stacks_and_remainders_equal_those_of_the_word_kernels(items: int, kind: str) -> None:
    q, db = opposites(items) if kind == "opposite" else (some_codes(n, 8, n, kind == "tied") for n in (MANY, items))
    if kind == "even":
        db[:, 7] = np.bitwise_count(db[:, :7]).sum(axis=1) % 2  # one part is empty
    query_words, item_words = np.ascontiguousarray(to_words(q).T), to_words(db)
    expected = np.zeros((len(q), 65), np.int64)
    kernels.histogram_rows(query_words, item_words, expected)
    np.testing.assert_array_equal(codes.distance_histograms(q, db), expected)


@pytest.mark.parametrize("kind", ["random", "tied", "opposite"])
def test_top_k_of_many_blocks_equals_that_of_the_word_kernels(kind: str) -> None:
    q, db = opposites(9000) if kind == "opposite" else (some_codes(n, 8, n, kind == "tied") for n in (MANY, 9000))
    query_words, item_words = np.ascontiguousarray(to_words(q).T), to_words(db)
    near, position = np.empty((len(q), 14), np.int16), np.empty((len(q), 14), np.int64)
    kernels.nearest_rows(query_words, item_words, 7, near, position)
    found = codes.top_k(q, db, 7)
    np.testing.assert_array_equal(found.distances, near[:, :7])
    np.testing.assert_array_equal(found.indices, position[:, :7])


def test_sums_of_triples_by_hand() -> None:
    row = np.zeros(70, np.uint64)
    row[69] = 0b101  # item 69: bit 5 of word 1
    sums = np.empty((bit_planes.TRIPLES, 8, 2, 4), np.uint64)
    bit_planes.sum_triples(row, 0, np.empty((66, 4), np.uint64), sums)
    ones, twos = (sums[0, :, weight, 1] >> np.uint64(5) & np.uint64(1) for weight in (0, 1))
    assert (ones + 2 * twos).tolist() == [(0b101 ^ pattern).bit_count() for pattern in range(8)]
    ones, twos = (sums[0, :, weight, 3] & np.uint64(1) for weight in (0, 1))  # past the end: a code of zeros
    assert (ones + 2 * twos).tolist() == [pattern.bit_count() for pattern in range(8)]


def test_few_queries_and_long_codes_use_the_word_kernels() -> None:
    short, long = (to_words(some_codes(MANY, width, 0, tied=False)) for width in (8, 9))
    assert bitsliced.is_faster(short.T, short)
    assert not bitsliced.is_faster(short.T[:5], short)
    assert not bitsliced.is_faster(long.T, long)


def test_each_part_has_one_parity() -> None:
    even, odd = bitsliced.split_by_parity(to_words(some_codes(100, 8, 0, tied=False)))
    assert even.shape[1] + odd.shape[1] == 100
    assert (np.bitwise_count(even) % 2 == 0).all()
    assert (np.bitwise_count(odd) % 2 == 1).all()
