import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash.codes import pack
from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.clusters.centroids import assign_clusters
from proxyhash.index.clusters.clustered import ClusteredSegment, build_clustered_segment
from proxyhash.index.item_ids import pack_item_ids


def codes_around(count: int, bits: int, seed: int, flips: float, centroids: Packed) -> Packed:
    """Codes of so many bits around randomly chosen centroids."""
    random = np.random.default_rng(seed)
    own = np.unpackbits(centroids, axis=1, count=bits, bitorder="little")[random.integers(0, len(centroids), count)]
    return pack((own ^ (random.random((count, bits)) < flips)).astype(bool))


def random_codes(count: int, bits: int, seed: int) -> Packed:
    return pack(np.random.default_rng(seed).random((count, bits)) < 0.5)


def segment_of(codes: Packed, item_ids: np.ndarray, centroids: Packed) -> ClusteredSegment:
    clusters = assign_clusters(codes, centroids)
    sizes = np.bincount(clusters, minlength=len(centroids)).astype(np.int64)
    below = int(item_ids.max(initial=0)) + 1
    centroid_words = np.ascontiguousarray(to_words(centroids).T)
    return build_clustered_segment(
        centroid_words, sizes, lambda sink: sink(to_words(codes), item_ids.astype(np.uint32), clusters), below
    )


def query_words(codes: Packed) -> np.ndarray:
    return np.ascontiguousarray(to_words(codes).T)


def check_nearest(segment: ClusteredSegment, queries: Packed, codes: Packed, item_ids: np.ndarray, k: int) -> None:
    found, compared = segment.nearest(query_words(queries), k, threads=1)
    near, index = hamming_reference.top_k(queries, codes, k)
    np.testing.assert_array_equal(found.distances, near.ravel())
    np.testing.assert_array_equal(found.item_ids, item_ids[index].ravel())
    np.testing.assert_array_equal(segment.codes(found.slots), query_words(codes[index.ravel()]))
    assert len(queries) * min(k, len(codes)) <= compared <= len(queries) * len(codes)


CASES = {
    "items": st.integers(1, 1500),  # blocks that are full, and some that are not
    "bits": st.sampled_from([1, 16, 63, 64, 65, 128, 300]),
    "clusters": st.sampled_from([1, 2, 7, 60]),  # of 60, most are smaller than a block and some are empty
    "flips": st.sampled_from([0.02, 0.1, 0.3]),
    "first": st.sampled_from([0, 2**16 - 300, 2**24 - 100, 2**31]),  # item ids of three bytes and of four
    "seed": st.integers(0, 5),
}


@given(**CASES, queries=st.sampled_from([1, 9]), k=st.sampled_from([1, 10, 300, 5000]))
def test_nearest_equals_full_scan(
    items: int, bits: int, clusters: int, flips: float, first: int, seed: int, queries: int, k: int
) -> None:
    centroids = random_codes(clusters, bits, seed)
    codes, asked = codes_around(items, bits, seed, flips, centroids), codes_around(queries, bits, seed + 9, 0.1, centroids)
    item_ids = first + np.sort(np.random.default_rng(seed).choice(2 * items, items, replace=False))
    check_nearest(segment_of(codes, item_ids, centroids), asked, codes, item_ids, k)


@given(**CASES, radius=st.sampled_from([0, 2, 9, 40, 70, 10**6]))
def test_range_search_is_complete(
    items: int, bits: int, clusters: int, flips: float, first: int, seed: int, radius: int
) -> None:
    centroids = random_codes(clusters, bits, seed)
    codes, asked = codes_around(items, bits, seed, flips, centroids), codes_around(4, bits, seed + 9, 0.1, centroids)
    segment = segment_of(codes, first + np.arange(items), centroids)
    found = segment.range_search(query_words(asked), radius, threads=1)
    for row, (near, index) in enumerate(hamming_reference.range_search(asked, codes, radius)):
        rows = slice(found.offsets[row], found.offsets[row + 1])
        np.testing.assert_array_equal(found.distances[rows], near)
        np.testing.assert_array_equal(found.item_ids[rows], first + index)


@given(**CASES, deleted=st.floats(0.05, 0.95))
def test_removed_codes_are_not_found(
    items: int, bits: int, clusters: int, flips: float, first: int, seed: int, deleted: float
) -> None:
    centroids, item_ids = random_codes(clusters, bits, seed), first + np.arange(items)
    codes, asked = codes_around(items, bits, seed, flips, centroids), codes_around(3, bits, seed + 9, 0.1, centroids)
    low = np.flatnonzero(np.random.default_rng(seed).random(items) < deleted)
    kept = np.setdiff1d(np.arange(items), low)
    whole = segment_of(codes, item_ids, centroids)
    segment = whole.drop_ranges(first + low, first + low)
    assert (len(segment), segment.tombstones, len(whole)) == (len(kept), len(low), items)
    stored, numbers = segment.all_codes()
    order = np.argsort(numbers)
    np.testing.assert_array_equal(numbers[order], item_ids[kept])
    np.testing.assert_array_equal(stored[:, order], to_words(codes)[:, kept])
    if len(kept):
        check_nearest(segment, asked, codes[kept], item_ids[kept], 10)
    check_nearest(whole, asked, codes, item_ids, 10)  # the old segment is unchanged


def test_empty_slots_are_never_found() -> None:
    """The empty slots of a block equal the centroid, which is the query."""
    centroid = np.array([[0b1010_1010]], np.uint8)
    codes = centroid ^ np.full((3, 1), 0b0000_0111, np.uint8)
    segment = segment_of(codes, np.arange(3), centroid)
    offsets = segment.range_search(query_words(centroid), 2).offsets
    found, compared = segment.nearest(query_words(centroid), 300)
    assert (offsets.tolist(), compared) == ([0, 0], 3)
    assert (found.distances.tolist(), found.item_ids.tolist()) == ([3, 3, 3], [0, 1, 2])


def test_ties_go_to_the_lower_id_across_blocks_shells_and_clusters() -> None:
    """1,000 codes one bit from the query, in shells 0 and 2 of two clusters, each with several blocks."""
    query, centroids = np.zeros((1, 8), np.uint8), np.zeros((2, 8), np.uint8)
    centroids[0, 0], centroids[1, 0] = 0b01, 0b10
    codes = np.zeros((1000, 8), np.uint8)
    codes[np.arange(1000), np.arange(1000) % 8] = 1 << (np.arange(1000) // 8 % 8)
    item_ids = 70_000 + np.random.default_rng(0).permutation(1000)
    order = np.argsort(item_ids)
    segment = segment_of(codes[order], item_ids[order], centroids)
    for k in (1, 7, 999):
        found, _ = segment.nearest(query_words(query), k)
        assert found.item_ids.tolist() == list(range(70_000, 70_000 + k))
        assert set(found.distances.ravel().tolist()) == {1}


def test_empty_clusters_and_empty_segments_are_searched() -> None:
    centroids = np.array([[0], [255], [15]], np.uint8)
    segment = segment_of(np.full((5, 1), 254, np.uint8), np.arange(5), centroids)
    found, compared = segment.nearest(np.zeros((1, 1), np.uint64), 2)
    assert (found.distances.tolist(), found.item_ids.tolist(), compared) == ([7, 7], [0, 1], 5)
    empty = segment.drop_ranges(np.array([0]), np.array([4]))
    assert (len(empty), empty.nearest(np.zeros((1, 1), np.uint64), 2)[0].ranks.shape) == (0, (0,))


@pytest.mark.parametrize(("last", "size"), [(2**16, 3), (2**24 - 1, 3), (2**24, 4), (2**32 - 1, 4)])
def test_item_ids_take_three_bytes_below_two_to_the_24(last: int, size: int) -> None:
    numbers = np.array([0, 65_535, last], np.uint32)
    item_ids = pack_item_ids(numbers)
    assert sum(part.itemsize for part in item_ids) == size
    assert item_ids.at(np.arange(3)).tolist() == [0, 65_535, last]


def test_code_takes_less_than_twelve_bytes() -> None:
    """Codes of 64 bits in clusters of thousands, as in an index of millions."""
    centroids = random_codes(4, 64, 0)
    clusters = segment_of(codes_around(40_000, 64, 1, 0.05, centroids), np.arange(40_000), centroids).clusters
    assert sum(part.nbytes for part in (*clusters[:-1], *clusters.item_ids)) < 11.5 * 40_000
