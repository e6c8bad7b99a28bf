import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.codes import reference
from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.clusters.centroids import assign, choose_centres, share_looked_at
from proxyhash.index.clusters.clustered import grouped_segment
from proxyhash.index.clusters.segment import Segment, distances_of, plain_segment, positions_of


def some_codes(count: int, width: int, seed: int, tied: bool) -> Packed:
    return np.random.default_rng(seed).integers(0, 4 if tied else 256, (count, width), dtype=np.uint8)


def segment_of(codes: Packed, positions: np.ndarray, centres: Packed | None) -> Segment:
    rows, numbers = to_words(codes), positions.astype(np.uint32)
    if centres is None:
        return plain_segment(len(rows), len(codes), lambda take: take(rows, numbers, np.zeros(len(codes), np.uint16)))
    groups = assign(codes, centres)
    sizes = np.bincount(groups, minlength=len(centres)).astype(np.int64)
    half = len(codes) // 2

    def fill(take):  # type: ignore[no-untyped-def]
        for part in (slice(0, half), slice(half, None)):
            take(rows[:, part], numbers[part], groups[part])

    return grouped_segment(np.ascontiguousarray(to_words(centres).T), sizes, fill)


CASES = {
    "items": st.integers(1, 700),
    "width": st.sampled_from([1, 3, 4, 8, 12, 16, 24]),
    "seed": st.integers(0, 9),
    "tied": st.booleans(),
    "groups": st.sampled_from([0, 1, 3, 40]),
    "queries": st.sampled_from([1, 2, 9, 20]),
}


@given(**CASES, k=st.sampled_from([1, 2, 10, 5000]))
def test_the_nearest_are_those_of_a_full_scan_positions_included(
    items: int, width: int, seed: int, tied: bool, groups: int, queries: int, k: int
) -> None:
    db, q = some_codes(items, width, seed, tied), some_codes(queries, width, seed + 1, tied)
    positions = np.sort(np.random.default_rng(seed).choice(3 * items, items, replace=False))
    centres = some_codes(groups, width, seed + 2, tied) if groups else None
    segment = segment_of(db, positions, centres)
    found, _ = segment.nearest(np.ascontiguousarray(to_words(q).T), k, threads=2)
    near, place = reference.top_k(q, db, k)
    np.testing.assert_array_equal(found.distances, near)
    np.testing.assert_array_equal(found.positions, positions[place])
    stored = segment.codes(found.places.ravel())
    np.testing.assert_array_equal(stored, to_words(db[place.ravel()]).T)


@given(**CASES, radius=st.sampled_from([0, 1, 5, 30, 200]))
def test_what_lies_within_a_radius_is_all_there_is(
    items: int, width: int, seed: int, tied: bool, groups: int, queries: int, radius: int
) -> None:
    db, q = some_codes(items, width, seed, tied), some_codes(queries, width, seed + 1, tied)
    segment = segment_of(db, np.arange(items), some_codes(groups, width, seed + 2, tied) if groups else None)
    starts, found = segment.within(np.ascontiguousarray(to_words(q).T), radius, threads=2)
    for row, (near, place) in enumerate(reference.within(q, db, radius)):
        keys = found.keys[starts[row] : starts[row + 1]]
        np.testing.assert_array_equal(distances_of(keys), near)
        np.testing.assert_array_equal(positions_of(keys), place)


def test_groups_far_away_are_not_looked_at() -> None:
    """Two clusters at opposite corners of the cube, one bit wide: a query in one never sees the other."""
    near, far = np.zeros((100, 8), np.uint8), np.full((900, 8), 255, np.uint8)
    near[:, 0] = 1
    segment = segment_of(np.concatenate([near, far]), np.arange(1000), np.array([[0] * 8, [255] * 8], np.uint8))
    found, looked = segment.nearest(np.zeros((1, 1), np.uint64), 5)
    assert looked == 100
    assert found.distances.tolist() == [[1] * 5]
    assert found.positions.tolist() == [[0, 1, 2, 3, 4]]


def test_an_equal_bound_is_looked_at_because_an_earlier_position_may_lie_there() -> None:
    """Position 0 lies one bit from the query in the farther group, whose bound is exactly the k-th distance."""
    codes = np.array([[0b0011], [0b0000], [0b0110]], np.uint8)
    centres = np.array([[0b0000], [0b0011]], np.uint8)
    segment = segment_of(codes, np.arange(3), centres)
    found, _ = segment.nearest(np.array([[0b0001]], np.uint64), 1)
    assert (found.distances.tolist(), found.positions.tolist()) == ([[1]], [[0]])


def test_assignment_is_to_the_nearest_centre() -> None:
    codes, centres = some_codes(3000, 12, 0, tied=False), some_codes(70, 12, 1, tied=False)
    _, nearest = reference.top_k(codes, centres, 1)
    np.testing.assert_array_equal(assign(codes, centres), nearest[:, 0])
    assert not assign(codes, None).any()


@pytest.mark.parametrize("start", [None, "proxies"])
def test_centres_are_found_where_codes_gather_and_none_where_they_do_not(start: str | None) -> None:
    random = np.random.default_rng(0)
    middle = random.integers(0, 256, (30, 8), dtype=np.uint8)
    noise = np.packbits(random.random((8000, 64)) < 0.04, axis=1)
    sample = middle[random.integers(0, 30, 8000)] ^ noise
    chosen = choose_centres(sample, 100_000, middle[:10] if start else None)
    assert chosen.codes is not None
    assert chosen.share < 0.08
    to_middle, _ = reference.top_k(middle, chosen.codes, 1)
    assert (to_middle == 0).mean() > 0.9  # the majority of a cluster is its middle

    uniform = choose_centres(random.integers(0, 256, (8000, 8), dtype=np.uint8), 100_000, None)
    assert uniform.codes is None
    assert uniform.share > 0.5


def test_the_share_is_what_the_triangle_inequality_leaves() -> None:
    """Two equal clusters of two codes, 60 bits apart: a query looks at its own half."""
    sample = np.zeros((40, 8), np.uint8)
    sample[20:] = 255
    sample[::2, 0] ^= 1
    centres = np.array([[0] * 8, [255] * 8], np.uint8)
    assert share_looked_at(sample, centres) == pytest.approx(0.25)  # the nearest other is equal: only its own shell
