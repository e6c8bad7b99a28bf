import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash.codes.bits import Packed, Words, to_words
from proxyhash.index.clusters.segment import FlatSegment, flat_segment
from proxyhash.index.hits import Hits
from proxyhash.index.mih.multi_index import MultiIndex, build_multi_index


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
    found = multi_index(codes, bits, item_ids).nearest(as_words(asked), k, threads, allowed=mask)
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
    found = multi_index(codes, bits).range_search(as_words(asked), radius, threads, allowed=mask)
    expected = [(near, kept[index]) for near, index in hamming_reference.range_search(asked, codes[kept], radius)]
    assert found.is_complete.all()
    assert_equal_rows(found.hits, expected, np.arange(count))
