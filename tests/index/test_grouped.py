import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.codes import pack, reference
from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.clusters.centroids import assign
from proxyhash.index.clusters.clustered import GroupedSegment, grouped_segment
from proxyhash.index.clusters.segment import distances_of, positions_of
from proxyhash.index.item_ids import positions_from


def codes_around(count: int, bits: int, seed: int, flips: float, centres: Packed) -> Packed:
    """Codes of so many bits around random ones of some centres."""
    random = np.random.default_rng(seed)
    own = np.unpackbits(centres, axis=1, count=bits, bitorder="little")[random.integers(0, len(centres), count)]
    return pack((own ^ (random.random((count, bits)) < flips)).astype(bool))


def random_codes(count: int, bits: int, seed: int) -> Packed:
    return pack(np.random.default_rng(seed).random((count, bits)) < 0.5)


def segment_of(codes: Packed, positions: np.ndarray, centres: Packed) -> GroupedSegment:
    groups = assign(codes, centres)
    sizes = np.bincount(groups, minlength=len(centres)).astype(np.int64)
    below = int(positions.max(initial=0)) + 1
    centre_words = np.ascontiguousarray(to_words(centres).T)
    return grouped_segment(
        centre_words, sizes, lambda take: take(to_words(codes), positions.astype(np.uint32), groups), below
    )


def as_queries(codes: Packed) -> np.ndarray:
    return np.ascontiguousarray(to_words(codes).T)


def check_nearest(segment: GroupedSegment, queries: Packed, codes: Packed, positions: np.ndarray, k: int) -> None:
    found, looked = segment.nearest(as_queries(queries), k, threads=1)
    near, place = reference.top_k(queries, codes, k)
    np.testing.assert_array_equal(found.distances, near)
    np.testing.assert_array_equal(found.positions, positions[place])
    np.testing.assert_array_equal(segment.codes(found.places.ravel()), as_queries(codes[place.ravel()]))
    assert len(queries) * min(k, len(codes)) <= looked <= len(queries) * len(codes)


CASES = {
    "items": st.integers(1, 1500),  # blocks that are full, and some that are not
    "bits": st.sampled_from([1, 16, 63, 64, 65, 128, 300]),
    "groups": st.sampled_from([1, 2, 7, 60]),  # of 60, most are smaller than a block and some are empty
    "flips": st.sampled_from([0.02, 0.1, 0.3]),
    "first": st.sampled_from([0, 2**16 - 300, 2**24 - 100, 2**31]),  # positions of three bytes and of four
    "seed": st.integers(0, 5),
}


@given(**CASES, queries=st.sampled_from([1, 9]), k=st.sampled_from([1, 10, 300, 5000]))
def test_the_nearest_are_those_of_a_full_scan(
    items: int, bits: int, groups: int, flips: float, first: int, seed: int, queries: int, k: int
) -> None:
    centres = random_codes(groups, bits, seed)
    codes, asked = codes_around(items, bits, seed, flips, centres), codes_around(queries, bits, seed + 9, 0.1, centres)
    positions = first + np.sort(np.random.default_rng(seed).choice(2 * items, items, replace=False))
    check_nearest(segment_of(codes, positions, centres), asked, codes, positions, k)


@given(**CASES, radius=st.sampled_from([0, 2, 9, 40, 70, 10**6]))
def test_what_lies_within_a_radius_is_all_there_is(
    items: int, bits: int, groups: int, flips: float, first: int, seed: int, radius: int
) -> None:
    centres = random_codes(groups, bits, seed)
    codes, asked = codes_around(items, bits, seed, flips, centres), codes_around(4, bits, seed + 9, 0.1, centres)
    starts, found = segment_of(codes, first + np.arange(items), centres).within(as_queries(asked), radius, threads=1)
    for row, (near, place) in enumerate(reference.within(asked, codes, radius)):
        keys = found.keys[starts[row] : starts[row + 1]]
        np.testing.assert_array_equal(distances_of(keys), near)
        np.testing.assert_array_equal(positions_of(keys), first + place)


@given(**CASES, gone=st.floats(0.05, 0.95))
def test_codes_that_were_removed_are_not_found(
    items: int, bits: int, groups: int, flips: float, first: int, seed: int, gone: float
) -> None:
    centres, positions = random_codes(groups, bits, seed), first + np.arange(items)
    codes, asked = codes_around(items, bits, seed, flips, centres), codes_around(3, bits, seed + 9, 0.1, centres)
    low = np.flatnonzero(np.random.default_rng(seed).random(items) < gone)
    kept = np.setdiff1d(np.arange(items), low)
    whole = segment_of(codes, positions, centres)
    segment = whole.without(first + low, first + low)
    assert (len(segment), segment.lost, len(whole)) == (len(kept), len(low), items)
    stored, numbers = segment.everything()
    order = np.argsort(numbers)
    np.testing.assert_array_equal(numbers[order], positions[kept])
    np.testing.assert_array_equal(stored[:, order], to_words(codes)[:, kept])
    if len(kept):
        check_nearest(segment, asked, codes[kept], positions[kept], 10)
    check_nearest(whole, asked, codes, positions, 10)  # who holds the old one sees nothing of it


def test_places_without_a_code_are_never_found() -> None:
    """In a block that is not full they look like the centre, which is exactly what is asked for."""
    centre = np.array([[0b1010_1010]], np.uint8)
    codes = centre ^ np.full((3, 1), 0b0000_0111, np.uint8)
    segment = segment_of(codes, np.arange(3), centre)
    starts, _ = segment.within(as_queries(centre), 2)
    found, looked = segment.nearest(as_queries(centre), 300)
    assert (starts.tolist(), looked) == ([0, 0], 3)
    assert (found.distances.tolist(), found.positions.tolist()) == ([[3, 3, 3]], [[0, 1, 2]])


def test_of_equal_distances_the_earlier_position_wins_across_blocks_shells_and_groups() -> None:
    """1,000 codes one bit from the query, in shells 0 and 2 of two groups, each with several blocks."""
    query, centres = np.zeros((1, 8), np.uint8), np.zeros((2, 8), np.uint8)
    centres[0, 0], centres[1, 0] = 0b01, 0b10
    codes = np.zeros((1000, 8), np.uint8)
    codes[np.arange(1000), np.arange(1000) % 8] = 1 << (np.arange(1000) // 8 % 8)
    positions = 70_000 + np.random.default_rng(0).permutation(1000)
    order = np.argsort(positions)
    segment = segment_of(codes[order], positions[order], centres)
    for k in (1, 7, 999):
        found, _ = segment.nearest(as_queries(query), k)
        assert found.positions.tolist() == [list(range(70_000, 70_000 + k))]
        assert set(found.distances.ravel().tolist()) == {1}


def test_groups_without_codes_and_segments_without_any() -> None:
    centres = np.array([[0], [255], [15]], np.uint8)
    segment = segment_of(np.full((5, 1), 254, np.uint8), np.arange(5), centres)
    found, looked = segment.nearest(np.zeros((1, 1), np.uint64), 2)
    assert (found.distances.tolist(), found.positions.tolist(), looked) == ([[7, 7]], [[0, 1]], 5)
    empty = segment.without(np.array([0]), np.array([4]))
    assert (len(empty), empty.nearest(np.zeros((1, 1), np.uint64), 2)[0].keys.shape) == (0, (1, 0))


@pytest.mark.parametrize(("last", "size"), [(2**16, 3), (2**24 - 1, 3), (2**24, 4), (2**32 - 1, 4)])
def test_positions_take_three_bytes_while_they_can(last: int, size: int) -> None:
    numbers = np.array([0, 65_535, last], np.uint32)
    positions = positions_from(numbers)
    assert sum(part.itemsize for part in positions) == size
    assert positions.at(np.arange(3)).tolist() == [0, 65_535, last]


def test_a_code_takes_less_than_twelve_bytes() -> None:
    """Of 64 bits, in groups of some thousands, as there are in an index of millions."""
    centres = random_codes(4, 64, 0)
    groups = segment_of(codes_around(40_000, 64, 1, 0.05, centres), np.arange(40_000), centres).groups
    assert sum(part.nbytes for part in (*groups[:-1], *groups.positions)) < 11.5 * 40_000
