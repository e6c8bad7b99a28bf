import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash.codes.bits import Packed, to_words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.index.clusters.centroids import assign_clusters, choose_centroids, scan_fraction
from proxyhash.index.clusters.clustered import build_clustered_segment
from proxyhash.index.clusters.segment import Segment, build_flat_segment
from proxyhash.index.clusters.word_segment import build_word_segment


def some_codes(count: int, width: int, seed: int, tied: bool) -> Packed:
    return np.random.default_rng(seed).integers(0, 4 if tied else 256, (count, width), dtype=np.uint8)


def segment_of(codes: Packed, item_ids: np.ndarray, centroids: Packed | None) -> Segment:
    rows, numbers = to_words(codes), item_ids.astype(np.uint32)
    if centroids is None:
        zeros = np.zeros(len(codes), np.uint16)
        return build_flat_segment(8 * codes.shape[1], len(codes), lambda sink: sink(rows, numbers, zeros))
    clusters = assign_clusters(codes, centroids)
    sizes = np.bincount(clusters, minlength=len(centroids)).astype(np.int64)
    half = len(codes) // 2

    def feed(sink):  # type: ignore[no-untyped-def]
        for part in (slice(0, half), slice(half, None)):
            sink(rows[:, part], numbers[part], clusters[part])

    return build_clustered_segment(np.ascontiguousarray(to_words(centroids).T), sizes, feed)


CASES = {
    "items": st.integers(1, 700),
    "width": st.sampled_from([1, 3, 4, 8, 12, 16, 24]),
    "seed": st.integers(0, 9),
    "tied": st.booleans(),
    "clusters": st.sampled_from([0, 1, 3, 40]),
    "queries": st.sampled_from([1, 2, 9, 20]),
}


@given(**CASES, k=st.sampled_from([1, 2, 10, 5000]))
def test_nearest_equals_full_scan_with_item_ids(
    items: int, width: int, seed: int, tied: bool, clusters: int, queries: int, k: int
) -> None:
    db, q = some_codes(items, width, seed, tied), some_codes(queries, width, seed + 1, tied)
    item_ids = np.sort(np.random.default_rng(seed).choice(3 * items, items, replace=False))
    centroids = some_codes(clusters, width, seed + 2, tied) if clusters else None
    segment = segment_of(db, item_ids, centroids)
    found, _ = segment.nearest(np.ascontiguousarray(to_words(q).T), k, threads=2)
    near, index = hamming_reference.top_k(q, db, k)
    np.testing.assert_array_equal(found.distances, near.ravel())
    np.testing.assert_array_equal(found.item_ids, item_ids[index].ravel())
    stored = segment.codes(found.slots)
    np.testing.assert_array_equal(stored, to_words(db[index.ravel()]).T)


@given(**CASES, radius=st.sampled_from([0, 1, 5, 30, 200]))
def test_range_search_is_complete(
    items: int, width: int, seed: int, tied: bool, clusters: int, queries: int, radius: int
) -> None:
    db, q = some_codes(items, width, seed, tied), some_codes(queries, width, seed + 1, tied)
    segment = segment_of(db, np.arange(items), some_codes(clusters, width, seed + 2, tied) if clusters else None)
    found = segment.range_search(np.ascontiguousarray(to_words(q).T), radius, threads=2)
    for row, (near, index) in enumerate(hamming_reference.range_search(q, db, radius)):
        rows = slice(found.offsets[row], found.offsets[row + 1])
        np.testing.assert_array_equal(found.distances[rows], near)
        np.testing.assert_array_equal(found.item_ids[rows], index)


@given(**CASES, k=st.sampled_from([1, 10, 5000]), density=st.sampled_from([0.0, 0.05, 0.5, 0.99]), cold=st.booleans())
def test_only_allowed_slots_are_found(
    items: int, width: int, seed: int, tied: bool, clusters: int, queries: int, k: int, density: float, cold: bool
) -> None:
    db, q = some_codes(items, width, seed, tied), some_codes(queries, width, seed + 1, tied)
    item_ids = np.sort(np.random.default_rng(seed).choice(3 * items, items, replace=False))
    words = np.ascontiguousarray(to_words(q).T)
    segment = segment_of(db, item_ids, some_codes(clusters, width, seed + 2, tied) if clusters else None)
    if cold:
        numbers, zeros = item_ids.astype(np.uint32), np.zeros(items, np.uint16)
        segment = build_word_segment(words.shape[1], items, lambda sink: sink(to_words(db), numbers, zeros))
    allowed_ids = item_ids[np.random.default_rng(seed).random(items) < density]
    allowed = SlotMask.of(np.isin(segment.slot_ids(), allowed_ids))
    kept = np.isin(item_ids, allowed_ids)
    radii = np.arange(queries) % 9
    for searched, mask in ((segment, allowed), (segment.select(allowed), None)):
        found, _ = searched.nearest(words, k, 2, mask)
        within = searched.range_search(words, radii, 2, mask)
        near, index = hamming_reference.top_k(q, db[kept], k)
        np.testing.assert_array_equal(found.distances, near.ravel())
        np.testing.assert_array_equal(found.item_ids, item_ids[kept][index].ravel())
        for row, radius in enumerate(radii):
            near, index = hamming_reference.range_search(q[row : row + 1], db[kept], int(radius))[0]
            mine = slice(within.offsets[row], within.offsets[row + 1])
            np.testing.assert_array_equal(within.distances[mine], near)
            np.testing.assert_array_equal(within.item_ids[mine], item_ids[kept][index])


def test_dropped_codes_leave_tombstones_in_a_flat_segment() -> None:
    db = some_codes(1500, 8, 0, tied=False)
    segment = segment_of(db, np.arange(1500), None).drop_ranges(np.array([10, 600]), np.array([19, 699]))
    assert (len(segment), segment.tombstones) == (1390, 110)
    words, item_ids = segment.all_codes()
    kept = np.r_[0:10, 20:600, 700:1500]
    np.testing.assert_array_equal(item_ids, kept)
    np.testing.assert_array_equal(words, to_words(db)[:, kept])
    found, _ = segment.nearest(np.ascontiguousarray(to_words(db[650:651]).T), 1)
    assert found.item_ids[0] not in range(600, 700)


def test_distant_clusters_are_not_compared() -> None:
    """Two clusters at opposite corners of the cube, one bit wide: a query in one never sees the other."""
    near, far = np.zeros((100, 8), np.uint8), np.full((900, 8), 255, np.uint8)
    near[:, 0] = 1
    segment = segment_of(np.concatenate([near, far]), np.arange(1000), np.array([[0] * 8, [255] * 8], np.uint8))
    found, compared = segment.nearest(np.zeros((1, 1), np.uint64), 5)
    assert compared == 100
    assert found.distances.tolist() == [1] * 5
    assert found.item_ids.tolist() == [0, 1, 2, 3, 4]


def test_shell_at_the_limit_is_compared_for_lower_ids() -> None:
    """Item 0 is one bit from the query in the farther cluster, whose bound is exactly the k-th distance."""
    codes = np.array([[0b0011], [0b0000], [0b0110]], np.uint8)
    centroids = np.array([[0b0000], [0b0011]], np.uint8)
    segment = segment_of(codes, np.arange(3), centroids)
    found, _ = segment.nearest(np.array([[0b0001]], np.uint64), 1)
    assert (found.distances.tolist(), found.item_ids.tolist()) == ([1], [0])


def test_codes_are_assigned_to_the_nearest_centroid() -> None:
    codes, centroids = some_codes(3000, 12, 0, tied=False), some_codes(70, 12, 1, tied=False)
    _, nearest = hamming_reference.top_k(codes, centroids, 1)
    np.testing.assert_array_equal(assign_clusters(codes, centroids), nearest[:, 0])
    assert not assign_clusters(codes, None).any()


@pytest.mark.parametrize("start", [None, "proxies"])
def test_centroids_are_chosen_for_clustered_codes_only(start: str | None) -> None:
    random = np.random.default_rng(0)
    middle = random.integers(0, 256, (30, 8), dtype=np.uint8)
    noise = np.packbits(random.random((8000, 64)) < 0.04, axis=1)
    sample = middle[random.integers(0, 30, 8000)] ^ noise
    chosen = choose_centroids(sample, 100_000, middle[:10] if start else None)
    assert chosen.codes is not None
    assert chosen.scan_fraction < 0.08
    to_middle, _ = hamming_reference.top_k(middle, chosen.codes, 1)
    assert (to_middle == 0).mean() > 0.9  # the majority of a cluster is its middle

    uniform = choose_centroids(random.integers(0, 256, (8000, 8), dtype=np.uint8), 100_000, None)
    assert uniform.codes is None
    assert uniform.scan_fraction > 0.5


def test_scan_fraction_follows_the_triangle_inequality() -> None:
    """Two equal clusters of two codes, 60 bits apart: a query looks at its own half."""
    sample = np.zeros((40, 8), np.uint8)
    sample[20:] = 255
    sample[::2, 0] ^= 1
    centroids = np.array([[0] * 8, [255] * 8], np.uint8)
    assert scan_fraction(sample, centroids) == pytest.approx(0.25)  # the nearest other is equal: only its own shell
