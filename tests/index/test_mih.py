import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.segment import FlatSegment, flat_segment
from proxyhash.index.hits import Hits
from proxyhash.index.mih.costs import expected_entries
from proxyhash.index.mih.multi_index import MultiIndex, build_multi_index
from proxyhash.index.mih.substrings import MAX_LENGTH, MAX_TABLES, choose_substrings


def random_codes(count: int, bits: int, seed: int, flips: float | None = None) -> Packed:
    """Return codes with uniform bits, or around one code with so many of them flipped."""
    random = np.random.default_rng((seed, count))
    values = random.random((count, bits)) < 0.5
    if flips is not None:
        center = np.random.default_rng(seed).random(bits) < 0.5
        values = center ^ (random.random((count, bits)) < flips)
    return np.packbits(values, axis=1, bitorder="little")


def as_words(codes: Packed) -> Words:
    return np.ascontiguousarray(to_words(codes).T)


def as_segment(codes: Packed, item_ids: np.ndarray) -> FlatSegment:
    return flat_segment(to_words(codes), item_ids, 8 * codes.shape[1])


def multi_index(codes: Packed, bits: int, item_ids: np.ndarray | None = None) -> MultiIndex:
    return build_multi_index(as_segment(codes, np.arange(len(codes)) if item_ids is None else item_ids), bits)


def slot_mask(mask: np.ndarray | None) -> SlotMask | None:
    return None if mask is None else SlotMask.of(mask)


def assert_equal_rows(hits: Hits, expected: list[tuple[np.ndarray, np.ndarray]], item_ids: np.ndarray) -> None:
    for row, (near, index) in enumerate(expected):
        mine = slice(hits.offsets[row], hits.offsets[row + 1])
        np.testing.assert_array_equal(hits.distances[mine], near)
        np.testing.assert_array_equal(hits.item_ids[mine], item_ids[index])


CASES = {
    "bits": st.one_of(st.integers(1, 150), st.sampled_from([64, 128, 256, 700, 1024, 2048, 4096])),
    "count": st.integers(1, 600),
    "seed": st.integers(0, 9),
    "flips": st.sampled_from([None, 0.02, 0.2]),
    "queries": st.sampled_from([1, 2, 9]),
    "threads": st.sampled_from([1, 2]),
    "allowed": st.sampled_from([None, 0.0, 0.3, 1.0]),
}


@given(**CASES, k=st.sampled_from([1, 2, 10, 5000]))
def test_nearest_equals_the_reference(
    bits: int, count: int, seed: int, flips: float | None, queries: int, threads: int, allowed: float | None, k: int
) -> None:
    codes, asked = random_codes(count, bits, seed, flips), random_codes(queries, bits, seed, flips)
    random = np.random.default_rng(seed)
    item_ids = np.sort(random.choice(3 * count, count, replace=False))
    mask = None if allowed is None else random.random(count) < allowed
    kept = np.arange(count) if mask is None else np.flatnonzero(mask)
    found = multi_index(codes, bits, item_ids).nearest(
        as_words(asked), k, threads, allowed=None if mask is None else SlotMask.of(mask)
    )
    near, index = hamming_reference.top_k(asked, codes[kept], k)
    assert found.is_complete.all()
    assert_equal_rows(found.hits, list(zip(near, kept[index], strict=True)), item_ids)
    np.testing.assert_array_equal(as_words(codes[kept[index].ravel()]), as_segment(codes, item_ids).codes(found.hits.slots))


@given(**CASES, radius=st.sampled_from([0, 1, 3, 8, 30, 200]))
def test_range_search_equals_the_reference(
    bits: int, count: int, seed: int, flips: float | None, queries: int, threads: int, allowed: float | None, radius: int
) -> None:
    codes, asked = random_codes(count, bits, seed, flips), random_codes(queries, bits, seed, flips)
    mask = None if allowed is None else np.random.default_rng(seed).random(count) < allowed
    kept = np.arange(count) if mask is None else np.flatnonzero(mask)
    found = multi_index(codes, bits).range_search(
        as_words(asked), radius, threads, allowed=None if mask is None else SlotMask.of(mask)
    )
    expected = [(near, kept[index]) for near, index in hamming_reference.range_search(asked, codes[kept], radius)]
    assert found.is_complete.all()
    assert_equal_rows(found.hits, expected, np.arange(count))


@pytest.mark.parametrize("bits", [24, 64, 256])
def test_results_equal_those_of_faiss(bits: int) -> None:
    faiss = pytest.importorskip("faiss")
    codes, asked = random_codes(20_000, bits, 3, 0.1), random_codes(20, bits, 3, 0.1)
    flat = faiss.IndexBinaryFlat(bits)
    flat.add(codes)
    index = multi_index(codes, bits)
    distances, _ = flat.search(asked, 10)
    np.testing.assert_array_equal(index.nearest(as_words(asked), 10).hits.distances, distances.ravel())
    radius = int(np.median(distances))
    starts, near, ids = flat.range_search(asked, radius + 1)  # faiss leaves the radius itself out
    found = index.range_search(as_words(asked), radius).hits
    np.testing.assert_array_equal(found.offsets, starts)
    order = np.lexsort((ids, near, found.queries))
    np.testing.assert_array_equal(found.item_ids, ids[order])


def test_few_codes_are_compared_within_a_small_radius() -> None:
    codes = random_codes(100_000, 64, 0)
    asked = codes[:50].copy()
    asked[:, 0] ^= 0b111
    found = multi_index(codes, 64).range_search(as_words(asked), 3)
    assert found.compared.mean() < 100
    assert found.hits.item_ids.tolist() == list(range(50))
    assert (found.hits.distances == 3).all()


def test_hits_do_not_depend_on_the_number_of_threads() -> None:
    index, asked = multi_index(random_codes(5000, 64, 1, 0.2), 64), as_words(random_codes(100, 64, 2, 0.2))
    one, two = (index.nearest(asked, 20, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.hits.ranks, two.hits.ranks)
    np.testing.assert_array_equal(one.compared, two.compared)


def test_query_beyond_a_limit_is_given_up() -> None:
    codes = random_codes(3000, 64, 1)
    index, asked = multi_index(codes, 64), as_words(np.concatenate([codes[:1], ~codes[:1]]))
    for limits in ({"max_radius": 2}, {"max_compared": 50}):
        found = index.nearest(asked, 1, **limits)  # type: ignore[arg-type]
        assert found.is_complete.tolist() == [True, False], limits
        assert found.hits.item_ids.tolist() == [0]
    assert index.range_search(asked, 30, max_compared=20).is_complete.tolist() == [False, False]


def test_range_search_has_room_for_all_codes() -> None:
    codes = np.zeros((3000, 8), np.uint8)
    codes[1000:, 0] = np.arange(2000) % 3
    found = multi_index(codes, 64).range_search(np.zeros((2, 1), np.uint64), 1)
    assert np.diff(found.hits.offsets).tolist() == [3000, 3000]
    assert found.hits.item_ids[:1000].tolist() == list(range(1000))


@given(bits=st.integers(1, 4096), count=st.integers(1, 50_000_000))
def test_substrings_are_disjoint_and_inside_the_code(bits: int, count: int) -> None:
    substrings = choose_substrings(bits, count)
    ends = substrings.starts + substrings.lengths
    assert len(substrings) <= MAX_TABLES
    assert (substrings.lengths >= 1).all()
    assert (substrings.lengths <= MAX_LENGTH).all()
    assert (np.diff(substrings.lengths) <= 0).all()
    assert (ends[:-1] <= substrings.starts[1:]).all()
    assert substrings.starts[0] == 0
    assert ends[-1] <= bits


@pytest.mark.parametrize("bits", [40, 64, 200])
def test_memory_is_announced_exactly(bits: int) -> None:
    substrings = choose_substrings(bits, 5000)
    small = 8 * 4 * len(substrings) * 2  # starts, lengths, bases and words of the tables
    assert 0 <= multi_index(random_codes(5000, bits, 0), bits).memory - substrings.memory(5000, bits) < small


@pytest.mark.parametrize("flips", [None, 0.1])
def test_expected_entries_are_those_that_are_compared(flips: float | None) -> None:
    codes, asked = random_codes(30_000, 64, 4, flips), random_codes(200, 64, 4, flips)
    expected = expected_entries(as_words(codes[:4096]), len(codes), choose_substrings(64, len(codes)), 64)
    index = multi_index(codes, 64)
    for radius in (4, 7):
        compared = index.nearest(as_words(asked), len(codes), max_radius=radius).compared.mean()  # all steps
        assert compared == pytest.approx(expected[radius], rel=0.3)
