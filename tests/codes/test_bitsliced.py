from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from helpers.processor_features import WITHOUT_WIDE_REGISTERS, needs_x86, run_with_all_features, run_with_features
from proxyhash import codes
from proxyhash.codes import kernels, scan, sources
from proxyhash.codes.bits import to_words
from proxyhash.codes.bitsliced import histograms, slicing, sums
from proxyhash.codes.bitsliced import kernels as bitsliced
from proxyhash.codes.bitsliced.llvm_ops import WIDE_BLOCK, WIDE_WORDS
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.utils.jit import cold_start

MANY = 60  # queries: enough for tables


@pytest.fixture(autouse=True)
def compiled() -> None:
    cold_start.end()


def some_codes(count: int, width: int, seed: int, tied: bool) -> np.ndarray:
    """Packed codes; tied ones use few values, so that most distances occur many times."""
    return np.random.default_rng(seed).integers(0, 4 if tied else 256, (count, width), dtype=np.uint8)


def opposites(items: int, width: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Queries among the items and opposite to them: the distances 0 and the number of bits occur."""
    db = some_codes(items, width, 5, tied=False)
    return np.concatenate([db[: MANY // 2], ~db[: MANY // 2]]), db


WIDTHS = st.one_of(st.integers(1, 24), st.sampled_from([32, 33, 63, 64, 128, 255, 256, 512]))


@given(
    width=WIDTHS,
    queries=st.sampled_from([1, 9, MANY]),
    items=st.integers(1, 600),
    seed=st.integers(0, 9),
    tied=st.booleans(),
    k=st.integers(1, 30),
)
def test_top_k_range_search_and_histograms_equal_the_reference(
    width: int, queries: int, items: int, seed: int, tied: bool, k: int
) -> None:
    q, db = some_codes(queries, width, seed, tied), some_codes(items, width, seed + 1, tied)
    source, rows = sources.slice_codes(slicing.code_rows(db), 8 * width), range(queries)
    near, position = hamming_reference.top_k(q, db, k)
    for distances, slots in (scan.nearest(source, q, k, 2), vars(codes.top_k(q, db, k, threads=2)).values()):
        np.testing.assert_array_equal(distances, near)
        np.testing.assert_array_equal(slots, position)
    radius = int(np.median(near)) + 1
    starts, distances, slots = scan.collect(source, q, np.full(queries, radius), 2)
    for row, (expected, order) in zip(rows, hamming_reference.range_search(q, db, radius), strict=True):
        np.testing.assert_array_equal(distances[starts[row] : starts[row + 1]], expected)
        np.testing.assert_array_equal(slots[starts[row] : starts[row + 1]], order)
    np.testing.assert_array_equal(codes.distance_histograms(q, db, threads=2), hamming_reference.histograms(q, db))


@given(items=st.integers(1, 1200), width=WIDTHS, seed=st.integers(0, 9))
def test_planes_hold_the_codes(items: int, width: int, seed: int) -> None:
    db = some_codes(items, width, seed, tied=False)
    source = sources.slice_codes(slicing.code_rows(db), 8 * width)
    words = to_words(db)
    np.testing.assert_array_equal(source.all_codes()[:, :items], words)
    assert not source.all_codes()[:, items:].any()
    chosen = np.random.default_rng(seed).integers(0, items, 20)
    np.testing.assert_array_equal(source.codes(chosen), words[:, chosen].T)
    assert source.num_valid == items


@given(parts=st.lists(st.integers(0, 900), max_size=6), width=st.sampled_from([1, 4, 8, 20]))
def test_codes_that_are_appended_in_parts_are_those_of_one_array(parts: list[int], width: int) -> None:
    db = some_codes(sum(parts), width, 3, tied=False)
    builder = sources.SlicedCodesBuilder(len(db), 8 * width)
    for first, last in zip(np.cumsum([0, *parts]), np.cumsum(parts), strict=False):
        builder.append(to_words(db[first:last]))
    built, expected = builder.build(), sources.slice_codes(slicing.code_rows(db), 8 * width)
    np.testing.assert_array_equal(built.planes, expected.planes)
    np.testing.assert_array_equal(built.valid, expected.valid)


@pytest.mark.parametrize("queries", [1, 9, MANY])
@pytest.mark.parametrize("width", [2, 8, 32])
def test_only_valid_slots_are_found(queries: int, width: int) -> None:
    q, db = some_codes(queries, width, 0, tied=True), some_codes(2000, width, 1, tied=True)
    allowed = np.random.default_rng(2).random(2000) < 0.1
    source = sources.slice_codes(slicing.code_rows(db), 8 * width).only(SlotMask.of(allowed))
    kept = np.flatnonzero(allowed)
    near, position = hamming_reference.top_k(q, db[kept], 2000)
    distances, slots = scan.nearest(source, q, 2000)
    np.testing.assert_array_equal(distances, near)
    np.testing.assert_array_equal(slots, kept[position])
    assert source.num_valid == len(kept)


def test_no_valid_slot_gives_no_result() -> None:
    source = sources.slice_codes(slicing.code_rows(some_codes(700, 8, 0, tied=False))).only(
        SlotMask.of(np.zeros(700, np.bool_))
    )
    distances, slots = scan.nearest(source, some_codes(3, 8, 1, tied=False), 5)
    assert distances.shape == slots.shape == (3, 0)
    starts, distances, slots = scan.collect(source, some_codes(3, 8, 1, tied=False), np.full(3, 64))
    assert starts.tolist() == [0, 0, 0, 0]
    assert len(distances) == len(slots) == 0


@pytest.mark.parametrize("items", [WIDE_BLOCK, 2 * histograms.STACK_ITEMS + 1, 3 * histograms.STACK_ITEMS + 777])
@pytest.mark.parametrize("kind", ["random", "tied", "opposite", "even"])
@pytest.mark.parametrize("width", [8, 16])
def test_histograms_of_stacks_equal_those_of_the_word_kernels(items: int, kind: str, width: int) -> None:
    q, db = (
        opposites(items, width) if kind == "opposite" else (some_codes(n, width, n, kind == "tied") for n in (MANY, items))
    )
    if kind == "even":
        db[:, -1] = np.bitwise_count(db[:, :-1]).sum(axis=1) % 2  # one part is empty
    query_words, item_words = np.ascontiguousarray(to_words(q).T), to_words(db)
    expected = np.zeros((len(q), 8 * width + 1), np.int64)
    kernels.histogram_rows(query_words, item_words, expected)
    np.testing.assert_array_equal(codes.distance_histograms(q, db), expected)


@pytest.mark.parametrize("kind", ["random", "tied", "opposite"])
@pytest.mark.parametrize("width", [8, 32])
def test_top_k_of_many_blocks_equals_that_of_a_few_queries(kind: str, width: int) -> None:
    tied = kind == "tied"
    q, db = opposites(9000, width) if kind == "opposite" else (some_codes(n, width, n, tied) for n in (MANY, 9000))
    together, alone = codes.top_k(q, db, 7), [codes.top_k(query[None], db, 7) for query in q]
    np.testing.assert_array_equal(together.distances, np.concatenate([found.distances for found in alone]))
    np.testing.assert_array_equal(together.indices, np.concatenate([found.indices for found in alone]))


def test_sums_of_triples_by_hand() -> None:
    row = np.zeros((70, 1), np.uint64)
    row[69] = 0b101  # item 69: bit 5 of word 1
    planes = sources.slice_codes(row).planes
    table = np.empty((22, 8, 2, WIDE_WORDS), np.uint64)
    bitsliced.build_table(planes, 0, 0, np.empty((66, WIDE_WORDS), np.uint64), table)
    ones, twos = (table[0, :, weight, 1] >> np.uint64(5) & np.uint64(1) for weight in (0, 1))
    assert (ones + 2 * twos).tolist() == [(0b101 ^ pattern).bit_count() for pattern in range(8)]
    ones, twos = (table[0, :, weight, 3] & np.uint64(1) for weight in (0, 1))  # past the end: a code of zeros
    assert (ones + 2 * twos).tolist() == [pattern.bit_count() for pattern in range(8)]
    assert sums.TRIPLE_WORDS == table[0].size


PROGRAM = """
import json, sys
import numpy as np
from proxyhash import codes
from proxyhash.codes import scan, sources
from proxyhash.codes.bitsliced.llvm_ops import WIDE_WORDS
from proxyhash.codes.bitsliced.slicing import code_rows
from proxyhash.index.where.conditions import SpanCondition
from proxyhash.utils.jit import cold_start
cold_start.end()
random, found = np.random.default_rng(0), {"words": WIDE_WORDS}
kept = SpanCondition(random.integers(0, 99, 3000).astype(np.int16), [(5, 50)], None).mask(3000)
for width in (2, 4, 8, 24):
    q, db = (random.integers(0, 8, (count, width), dtype=np.uint8) for count in (40, 3000))
    for queries in (q[:2], q[:10], q):
        top, near = codes.top_k(queries, db, 9), codes.range_search(queries, db, width)
        counts = codes.distance_histograms(queries, db)
        masked = scan.nearest(sources.slice_codes(code_rows(db)).only(kept), queries, 9)
        arrays = top.distances, top.indices, near.starts, near.distances, near.indices, counts, *masked
        found[f"{width} {len(queries)}"] = [int((array.ravel() * np.arange(1, array.size + 1)).sum()) for array in arrays]
print(json.dumps(found))
"""


@needs_x86
@pytest.mark.parametrize("features", WITHOUT_WIDE_REGISTERS)
def test_results_are_equal_without_wide_registers(features: str, tmp_path: Path) -> None:
    found = run_with_features(PROGRAM, features, tmp_path)
    assert found.pop("words") == 4
    expected = run_with_all_features(PROGRAM)
    assert expected.pop("words") == WIDE_WORDS
    assert found == expected
