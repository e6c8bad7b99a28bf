import threading

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import hamming_reference
from proxyhash import InputError, codes
from proxyhash.codes import kernels, scan, sources
from proxyhash.codes.bitsliced.kernels import Nearest
from proxyhash.codes.search import parallel_over_queries


def some_codes(count: int, width: int, seed: int, tied: bool) -> np.ndarray:
    """Packed codes; tied ones use few values, so that most distances occur many times."""
    return np.random.default_rng(seed).integers(0, 4 if tied else 256, (count, width), dtype=np.uint8)


CASES = {
    "queries": st.integers(1, 5),
    "items": st.integers(1, 400),
    "width": st.integers(1, 20),
    "seed": st.integers(0, 9),
    "tied": st.booleans(),
    "threads": st.integers(1, 3),
}


@given(**CASES)
def test_distances_and_histograms_equal_the_reference(
    queries: int, items: int, width: int, seed: int, tied: bool, threads: int
) -> None:
    q, db = some_codes(queries, width, seed, tied), some_codes(items, width, seed + 1, tied)
    np.testing.assert_array_equal(codes.hamming_distances(q, db, threads=threads), hamming_reference.distances(q, db))
    np.testing.assert_array_equal(codes.distance_histograms(q, db, threads=threads), hamming_reference.histograms(q, db))


@given(**CASES, k=st.integers(1, 500))
def test_top_k_equals_the_reference(
    queries: int, items: int, width: int, seed: int, tied: bool, threads: int, k: int
) -> None:
    q, db = some_codes(queries, width, seed, tied), some_codes(items, width, seed + 1, tied)
    found = codes.top_k(q, db, k, threads=threads)
    near, position = hamming_reference.top_k(q, db, k)
    np.testing.assert_array_equal(found.distances, near)
    np.testing.assert_array_equal(found.indices, position)


@given(**CASES, radius=st.integers(0, 160))
def test_range_search_equals_the_reference(
    queries: int, items: int, width: int, seed: int, tied: bool, threads: int, radius: int
) -> None:
    q, db = some_codes(queries, width, seed, tied), some_codes(items, width, seed + 1, tied)
    found = codes.range_search(q, db, radius, threads=threads)
    assert len(found) == queries
    for row, (near, position) in enumerate(hamming_reference.range_search(q, db, radius)):
        np.testing.assert_array_equal(found[row][0], near)
        np.testing.assert_array_equal(found[row][1], position)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32, 64, 128, 512])
def test_many_blocks_and_many_queries_agree_with_faiss(width: int) -> None:
    q, db = some_codes(300, width, 0, tied=False), some_codes(kernels.BLOCK + 77, width, 1, tied=False)
    index = faiss.IndexBinaryFlat(8 * width)
    index.add(db)
    expected, _ = index.search(q, 25)

    found = codes.top_k(q, db, 25)

    np.testing.assert_array_equal(found.distances, expected)  # ties may differ in position: faiss does not promise them
    recomputed = np.bitwise_count(q[:, None] ^ db[found.indices]).sum(axis=2)
    np.testing.assert_array_equal(recomputed, expected)

    radius = int(expected[:, 3].max())
    limits, far, _ = index.range_search(q, radius + 1)  # faiss's radius is exclusive
    inside = codes.range_search(q, db, radius)
    np.testing.assert_array_equal(np.diff(inside.starts), np.diff(limits))
    np.testing.assert_array_equal(np.sort(inside.distances), np.sort(far))


def test_large_k_is_searched_in_small_batches_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    q, db = some_codes(9, 8, 0, tied=False), some_codes(300, 8, 1, tied=False)
    sizes: list[int] = []
    update = sources.PlainCodes.update_nearest

    def listen(source: sources.PlainCodes, queries: np.ndarray, found: Nearest, blocks: range) -> None:
        sizes.append(len(queries))
        update(source, queries, found, blocks)

    monkeypatch.setattr(sources.PlainCodes, "update_nearest", listen)
    monkeypatch.setattr(scan, "_MAX_CANDIDATES", 1200)
    found = codes.top_k(q, db, 300, threads=1)
    assert max(sizes) == 2
    np.testing.assert_array_equal(found.indices, hamming_reference.top_k(q, db, 300)[1])


@pytest.mark.parametrize("queries", [3, 20])
def test_every_query_may_have_a_radius_of_its_own(queries: int) -> None:
    q, db = some_codes(queries, 4, 0, tied=True), some_codes(2000, 4, 1, tied=True)
    radii = np.arange(queries) % 7
    found = codes.range_search(q, db, radii, threads=2)
    for row, radius in enumerate(radii):
        near, position = hamming_reference.range_search(q[row : row + 1], db, int(radius))[0]
        np.testing.assert_array_equal(found[row][0], near)
        np.testing.assert_array_equal(found[row][1], position)
    with pytest.raises(InputError, match="one for each of"):
        codes.range_search(q, db, radii[1:])


@pytest.mark.parametrize("queries", [3, 20])
def test_more_items_than_the_first_room_are_collected(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_ROOM", 600)
    q, db = some_codes(queries, 8, 0, tied=True), some_codes(3000, 8, 1, tied=True)
    found = codes.range_search(q, db, 6, threads=2)
    for row, (near, position) in enumerate(hamming_reference.range_search(q, db, 6)):
        np.testing.assert_array_equal(found[row][0], near)
        np.testing.assert_array_equal(found[row][1], position)


@pytest.mark.parametrize("k", [10, 2000])
@pytest.mark.parametrize("queries", [1, 70])
def test_results_do_not_depend_on_the_number_of_threads(queries: int, k: int) -> None:
    q, db = some_codes(queries, 8, 0, tied=True), some_codes(200_000, 8, 1, tied=True)
    one, two, three = (codes.top_k(q, db, k, threads=threads) for threads in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(other.distances, one.distances)
        np.testing.assert_array_equal(other.indices, one.indices)


def test_results_have_a_short_repr() -> None:
    q, db = some_codes(2, 2, 0, tied=False), some_codes(9, 2, 1, tied=False)
    assert repr(codes.top_k(q, db, 3)).startswith("Neighbors(3 of each of 2 queries, ")
    assert repr(codes.range_search(q, db, 16)) == "RangeSearchResult(18 items for 2 queries)"


@pytest.mark.parametrize("function", [codes.hamming_distances, codes.distance_histograms, lambda q, d: codes.top_k(q, d, 1)])
@pytest.mark.parametrize(
    ("queries", "database", "sentence"),
    [
        (np.zeros((1, 2), np.uint8), np.zeros((1, 3), np.uint8), "2 bytes cannot be compared with a database of 3"),
        (np.zeros((0, 2), np.uint8), np.zeros((1, 2), np.uint8), "Queries must hold at least one code"),
        (np.zeros((1, 2), np.uint8), np.zeros((0, 2), np.uint8), "The database must hold at least one code"),
        (np.zeros((1, 2)), np.zeros((1, 2), np.uint8), "Queries must be packed"),
        (np.zeros((1, 2), np.uint8), np.zeros(2, np.uint8), "The database must be packed"),
    ],
)
def test_codes_of_wrong_shape_are_errors(function, queries, database, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError, match=sentence):
        function(queries, database)


def test_invalid_numbers_are_errors() -> None:
    code = np.zeros((1, 2), np.uint8)
    with pytest.raises(InputError, match="k must be at least 1"):
        codes.top_k(code, code, 0)
    with pytest.raises(InputError, match="radius must be at least 0"):
        codes.range_search(code, code, -1)
    with pytest.raises(InputError, match="threads must be at least 1"):
        codes.hamming_distances(code, code, threads=0)


@pytest.mark.parametrize(
    ("queries", "threads", "max_queries"), [(0, 2, 9), (1, 2, 9), (7, 2, 9), (9, 3, 9), (40, 2, 3), (40, 1, 3)]
)
def test_every_query_is_done_once_and_few_slices_by_the_caller_and_kept_threads(
    queries: int, threads: int, max_queries: int
) -> None:
    done, workers, steps = np.zeros(queries, np.int64), list[int](), list[float]()

    def work(rows: slice) -> None:
        done[rows] += 1
        workers.append(threading.get_ident())

    def progress(_: str, share: float) -> None:
        steps.append(share)

    parallel_over_queries(queries, threads, work, progress, max_queries)
    assert (done == 1).all()
    assert steps == sorted(steps)
    assert not queries or steps[-1] == 1.0
    if 0 < queries <= threads * max_queries:
        assert threading.get_ident() in workers
        assert len(set(workers)) <= threads


def test_an_error_in_a_slice_reaches_the_caller() -> None:
    def work(rows: slice) -> None:
        if rows.start:
            raise ZeroDivisionError

    for queries in (4, 40):  # as many slices as threads, and more
        with pytest.raises(ZeroDivisionError):
            parallel_over_queries(queries, 2, work, max_queries=2)
