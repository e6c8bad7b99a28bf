import logging
from pathlib import Path

import numpy as np
import pytest

from helpers import hamming_reference
from proxyhash.codes.bits import Packed, to_words
from proxyhash.index import Index
from proxyhash.index.clusters.segment import FlatSegment, Segment, build_flat_segment
from proxyhash.index.hits import Hits
from proxyhash.index.mih import costs, planner, table_cache
from proxyhash.index.mih.history import MAX_WASTE, DistanceHistory
from proxyhash.index.mih.planner import Planner
from proxyhash.index.mih.request import Request
from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.index.plans import Plan, plan_memory
from proxyhash.utils.errors import InputError

COUNT = 70_000


@pytest.fixture(autouse=True)
def _few_codes_have_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MIN_WORDS_FOR_TABLES", 65_536)


def uniform(count: int, seed: int) -> Packed:
    return np.random.default_rng(seed).integers(0, 256, (count, 8), dtype=np.uint8)


def clustered(count: int, seed: int) -> Packed:
    random = np.random.default_rng(seed)
    return uniform(50, 99)[random.integers(0, 50, count)] ^ np.packbits(random.random((count, 64)) < 0.05, axis=1)


def flipped(codes: Packed, bits: int, seed: int) -> Packed:
    """Return codes with so many of their bits flipped."""
    order = np.argsort(np.random.default_rng(seed).random((len(codes), 64)), axis=1)
    return codes ^ np.packbits(order < bits, axis=1)


def as_segment(codes: Packed) -> FlatSegment:
    words, item_ids = to_words(codes), np.arange(len(codes), dtype=np.uint32)
    return build_flat_segment(64, len(codes), lambda sink: sink(words, item_ids, np.zeros(len(codes), np.uint16)))


def nearest(codes: Packed, k: int = 1, threads: int = 1) -> Request:
    return Request(np.ascontiguousarray(to_words(codes).T), threads, k)


def within(codes: Packed, radius: int) -> Request:
    return Request(np.ascontiguousarray(to_words(codes).T), 1, None, radius)


def plans(hits: Hits) -> set[str]:
    assert hits.stats is not None
    return set(hits.stats.plans)


def assert_nearest(hits: Hits, queries: Packed, codes: Packed, k: int = 1) -> None:
    near, index = hamming_reference.top_k(queries, codes, k)
    np.testing.assert_array_equal(hits.distances, near.ravel())
    np.testing.assert_array_equal(hits.item_ids, index.ravel())


@pytest.fixture
def cheap_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tables pay at once, so that few searches are enough."""
    monkeypatch.setattr("proxyhash.index.mih.ledger.build_seconds", lambda *_: 1e-9)
    monkeypatch.setattr(costs, "SCAN_NS", 0.2)
    monkeypatch.setattr(costs, "READ_NS", 0.0)


def test_index_is_scanned_until_tables_would_have_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "SCAN_NS", 1.0)
    segment, chooser = as_segment(uniform(COUNT, 0)), Planner(64)
    queries = uniform(20, 1)
    used = [plans(chooser.search(segment, within(queries, 2))) for _ in range(40)]
    first = used.index({"mih"})
    assert used == [{"scan"}] * first + [{"mih"}] * (40 - first)
    build = costs.build_seconds(COUNT, choose_substrings(64, COUNT))
    scans = build / costs.scan_seconds(COUNT, 1, 20, 1)
    assert scans > 10
    assert scans - 1 <= first <= 1.2 * scans + 1  # tables save nearly all of the time of a scan here


@pytest.mark.usefixtures("cheap_tables")
def test_one_search_that_saves_enough_builds_tables() -> None:
    segment, chooser = as_segment(uniform(COUNT, 0)), Planner(64)
    assert plans(chooser.search(segment, within(uniform(5, 1), 2))) == {"mih"}
    assert chooser.tables.memory > 0


@pytest.mark.usefixtures("cheap_tables")
def test_near_neighbors_are_found_by_tables_and_distant_ones_by_a_scan() -> None:
    codes = uniform(COUNT, 0)
    segment, chooser = as_segment(codes), Planner(64)
    near, far = flipped(codes[:100], 2, 5), uniform(100, 6)
    for _ in range(3):
        hits = chooser.search(segment, nearest(near))
        assert_nearest(hits, near, codes)
    assert plans(hits) == {"mih"}
    assert hits.stats is not None
    assert hits.stats.compared.mean() < 0.01 * COUNT
    for _ in range(6):
        hits = chooser.search(segment, nearest(far))
        assert_nearest(hits, far, codes)
    assert plans(hits) == {"scan"}
    assert hits.stats is not None
    assert (hits.stats.compared == COUNT).all()  # after some searches, it is not tried any more


@pytest.mark.usefixtures("cheap_tables")
def test_batch_of_near_and_distant_neighbors_is_exact() -> None:
    codes = uniform(COUNT, 0)
    segment, chooser = as_segment(codes), Planner(64)
    queries = np.concatenate([flipped(codes[:200], 2, 5), uniform(20, 6)])
    queries = queries[np.random.default_rng(0).permutation(len(queries))]
    for _ in range(3):
        hits = chooser.search(segment, nearest(queries, 1, 2))
        assert_nearest(hits, queries, codes)
    assert plans(hits) == {"scan", "mih"}


@pytest.mark.usefixtures("cheap_tables")
def test_range_search_with_too_many_candidates_is_scanned() -> None:
    """Uniform codes look cheap, but one query is in the middle of thousands of equal codes."""
    codes = uniform(COUNT, 0)
    codes[:20_000, :4] = 0
    queries = np.concatenate([uniform(5, 1), np.zeros((1, 8), np.uint8)])
    segment, chooser = as_segment(codes), Planner(64)
    request = within(queries, 9)
    chooser.search(segment, request, "mih")
    hits = chooser.search(segment, request)
    for row, (near, index) in enumerate(hamming_reference.range_search(queries, codes, 9)):
        mine = slice(hits.offsets[row], hits.offsets[row + 1])
        np.testing.assert_array_equal(hits.distances[mine], near)
        np.testing.assert_array_equal(hits.item_ids[mine], index)


@pytest.mark.usefixtures("cheap_tables")
def test_tables_are_refused_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(table_cache, "available_memory", lambda: 1_000_000)
    segment, chooser = as_segment(uniform(COUNT, 0)), Planner(64)
    for _ in range(3):
        assert plans(chooser.search(segment, within(uniform(5, 1), 2))) == {"scan"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    with pytest.raises(InputError, match=r"would take \d+ MB while they are built, and 1 MB of memory are free"):
        chooser.search(segment, within(uniform(5, 1), 2), "mih")


def test_tables_are_announced_before_they_are_built(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    segment = as_segment(uniform(1000, 0))
    seen: list[str] = []

    def build(*_: object) -> None:
        seen.extend(record.getMessage() for record in caplog.records)
        raise KeyboardInterrupt

    monkeypatch.setattr("proxyhash.index.mih.multi_index.build_multi_index", build)
    with pytest.raises(KeyboardInterrupt):
        Planner(64).search(segment, within(uniform(5, 1), 2), "mih")
    assert seen == ["Building 11 tables for multi-index hashing of 1,000 codes of 64 bits: 0 MB."]


def test_copy_of_clustered_codes_is_announced_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(clustered(COUNT, 0), [str(number) for number in range(COUNT)])
        queries = uniform(3, 1)
        with monkeypatch.context() as patch:
            patch.setattr(table_cache, "available_memory", lambda: 3_000_000)
            with pytest.raises(
                InputError, match=r"A flat copy of the codes would take 3 MB while .* 3 MB of memory are free"
            ):
                index.search(queries, plan="scan")
        assert not caplog.records
        seen: list[str] = []
        copy = table_cache._copy_flat

        def copy_flat(segment: Segment) -> table_cache.FlatCopy:
            seen.extend(record.getMessage() for record in caplog.records)
            return copy(segment)

        monkeypatch.setattr(table_cache, "_copy_flat", copy_flat)
        assert [row.plan for row in index.search(queries, plan="scan")] == ["scan"] * 3
        assert seen == ["Copying 70,000 codes of 64 bits from clusters, to scan them: 1 MB."]


def test_history_suggests_the_radius_with_the_least_expected_time() -> None:
    seconds = np.array([0.01, 0.02, 0.1, 0.5, 2.0])
    history = DistanceHistory(4)
    assert history.choose(seconds, 1.0) == (1, 1.0)  # nothing is known: no query may lose more than 5 %
    history.add(np.full(100, 3))
    radius, expected = history.choose(seconds, 1.0)
    assert radius == 3
    assert expected == pytest.approx(0.5)
    history.add(np.full(300, 5))
    assert history.choose(seconds, 1.0) == (None, 1.0)
    mixed = DistanceHistory(4)
    mixed.add(np.array([1] * 90 + [5] * 10))
    radius, expected = mixed.choose(seconds, 1.0)
    assert radius == 1
    assert expected == pytest.approx(0.9 * 0.02 + 0.1 * 1.02)
    assert 0.1 * seconds[1] <= MAX_WASTE


def test_history_learns_the_distances_of_queries_that_were_given_up() -> None:
    history = DistanceHistory(4)
    history.add(np.full(10, 5))
    history.resolve(np.full(10, 2))
    assert history.weights.tolist() == [0, 0, 10, 0, 0, 0]


@pytest.mark.parametrize("make", [uniform, clustered])
def test_every_plan_of_an_index_has_the_same_matches(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    codes, queries = make(COUNT, 0), make(20, 1)
    keys = [str(number) for number in range(COUNT + 100)]
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(codes, keys[:COUNT])
        index.search(queries)
        index.add(make(100, 2), keys[COUNT:])  # these are in the second segment, which is always scanned
        index.remove(keys[5:9])
        has_clusters = index.info().plan.endswith("clusters")
        possible: list[Plan] = ["scan", "clusters", "mih"] if has_clusters else ["scan", "mih"]
        assert has_clusters == (make is clustered)
        expected, expected_range = index.search(queries, 15), index.range_search(queries, 12)
        for plan in possible:
            found = index.search(queries, 15, plan=plan, with_codes=True)
            assert [[(match.key, match.distance) for match in row] for row in found] == [
                [(match.key, match.distance) for match in row] for row in expected
            ]
            assert [match.code for match in found[0]] == [index.code(key).tobytes() for key in found[0].keys]
            within_12 = index.range_search(queries, 12, plan=plan)
            assert [row.keys for row in within_12] == [row.keys for row in expected_range]
            assert {row.plan for row in found + within_12} == {plan}
            assert all(row.compared is not None and 100 <= row.compared <= COUNT + 96 for row in found + within_12)
        assert index.info().tables_bytes > 0
        assert (index.info().mean_compared or 0) > 0
        assert set(index.info().searched_by) == set(possible)


def test_impossible_plans_are_refused(tmp_path: Path) -> None:
    with Index.open(tmp_path / "i", bits=64) as index:
        index.add(uniform(100, 0), [str(number) for number in range(100)])
    with Index.open(tmp_path / "i") as index:
        with pytest.raises(InputError, match="has no clusters"):
            index.search(uniform(1, 1), plan="clusters")
        with pytest.raises(InputError, match="There is no plan 'fast'; choose from scan, clusters, mih"):
            index.search(uniform(1, 1), plan="fast")  # type: ignore[arg-type]
        with pytest.raises(InputError, match="leave nprobe or the plan out"):
            index.search(uniform(1, 1), plan="scan", nprobe=2)
        assert index.search(uniform(1, 1), plan="mih")[0].as_dict()["plan"] == "mih"
        assert index.info().as_dict()["memory"] == plan_memory(100, 64, has_clusters=False)


def test_tables_of_a_segment_out_of_use_are_freed() -> None:
    chooser = Planner(64)
    for seed in range(2):
        segment = as_segment(uniform(1000, seed))
        chooser.search(segment, within(uniform(1, 1), 2), "mih")
        assert chooser.tables.memory > 0
    del segment
    assert chooser.tables.memory == 0


def test_small_segments_are_searched_without_a_choice() -> None:
    chooser = Planner(64)
    hits = chooser.search(as_segment(uniform(planner.MIN_WORDS_FOR_TABLES - 1, 0)), nearest(uniform(2, 1)))
    assert plans(hits) == {"scan"}
    assert chooser._ledger is None


def test_tables_outlive_the_removal_of_codes() -> None:
    codes, queries = uniform(2000, 0), uniform(5, 1)
    segment, chooser = as_segment(codes), Planner(64)
    tables = chooser.tables.require(segment).tables
    kept = segment.drop_ranges(np.array([0, 500]), np.array([99, 1500]))
    assert chooser.tables.require(kept).tables is tables
    left = np.concatenate([np.arange(100, 500), np.arange(1501, 2000)])
    hits = chooser.search(kept, nearest(queries, 950), "mih")
    near, index = hamming_reference.top_k(queries, codes[left], 950)
    np.testing.assert_array_equal(hits.distances, near.ravel())
    np.testing.assert_array_equal(hits.item_ids, left[index].ravel())
    assert_nearest(chooser.search(segment, nearest(queries, 3), "mih"), queries, codes, 3)  # an older snapshot


def test_tables_that_lack_codes_of_an_older_snapshot_are_not_used() -> None:
    codes, queries = uniform(2000, 0), uniform(5, 1)
    segment, chooser = as_segment(codes), Planner(64)
    chooser.tables.require(segment.drop_ranges(np.array([0]), np.array([99])))
    assert chooser.tables.get(segment) is None
    assert_nearest(chooser.search(segment, nearest(queries, 3), "mih"), queries, codes, 3)


def test_no_queries_take_no_time_by_any_plan() -> None:
    assert costs.cluster_seconds(1000.0, 1, 0, 2) == 0
    assert costs.cluster_seconds(1000.0, 1, 4, 2) == 2 * costs.cluster_seconds(1000.0, 1, 1, 2)
