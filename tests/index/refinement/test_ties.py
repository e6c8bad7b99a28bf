"""Sorting of refined searches, compared with NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proxyhash.index.clusters.clustered import build_clustered_segment
from proxyhash.index.clusters.segment import Segment, build_flat_segment
from proxyhash.index.clusters.word_segment import build_word_segment
from proxyhash.index.hits import NO_ROW, Hits, rescore_hits
from proxyhash.index.refinement.distances import RefinedRows, refined_rows
from proxyhash.index.refinement.ties import refine

Ints = NDArray[np.int64]


def flat(words: NDArray[np.uint64], item_ids: NDArray[np.uint32]) -> Segment:
    return build_flat_segment(64, len(words), lambda sink: sink(words[None], item_ids, np.zeros(len(words), np.uint16)))


def just_started(words: NDArray[np.uint64], item_ids: NDArray[np.uint32]) -> Segment:
    feed = lambda sink: sink(words[None], item_ids, np.zeros(len(words), np.uint16))  # noqa: E731
    return build_word_segment(1, len(words), feed)


def clustered(words: NDArray[np.uint64], item_ids: NDArray[np.uint32]) -> Segment:
    centroids = np.array([[0], [2**64 - 1]], np.uint64)
    own = (np.bitwise_count(words) > 32).astype(np.uint16)
    return build_clustered_segment(centroids, np.bincount(own, minlength=2), lambda sink: sink(words[None], item_ids, own))


def slot_ids(segment: Segment) -> Ints:
    """Return the item id of each slot; -1 for an empty one."""
    return segment.slot_ids()


def align(segment: Segment, rows: NDArray[Any], known: NDArray[np.bool_], queries: NDArray[Any]) -> RefinedRows:
    """Return the rows of items 0 to n - 1 in the order of the slots."""
    item_ids = slot_ids(segment)
    return refined_rows(rows[item_ids], known[item_ids] & (item_ids >= 0), queries)


def reference(
    words: NDArray[np.uint64], rows: NDArray[Any], known: NDArray[np.bool_], query: np.uint64, row: NDArray[Any]
) -> list[tuple[int, int, int]]:
    """Return (distance, refinement, item id) of all items in refined order."""
    distances = np.bitwise_count(words ^ query).astype(int)
    if rows.dtype == np.int8:
        refinements = np.floor(128 * np.linalg.norm(rows.astype(float) - row, axis=1)).astype(int)
    else:
        refinements = np.bitwise_count(rows ^ row).sum(1, dtype=int)
    refinements = np.where(known, refinements, NO_ROW)
    return sorted(zip(distances.tolist(), refinements.tolist(), range(len(words)), strict=True))


def found(hits: Hits, q: int) -> list[tuple[int, int, int]]:
    mine = slice(hits.offsets[q], hits.offsets[q + 1])
    columns = hits.distances[mine].tolist(), hits.refinements[mine].tolist(), hits.item_ids[mine].tolist()
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("build", [flat, just_started, clustered])
@pytest.mark.parametrize(("width", "dtype"), [(8, np.uint8), (16, np.uint8), (5, np.int8), (64, np.int8)])
@given(st.integers(0, 10_000), st.integers(1, 400), st.integers(1, 12), st.integers(1, 6))
def test_the_order_is_distance_then_refinement_then_item_id(
    build: Any, width: int, dtype: Any, seed: int, count: int, k: int, queries: int
) -> None:
    random = np.random.default_rng(seed)
    words = random.choice(np.array([0, 1, 3, 2**63, 2**64 - 1], np.uint64), count)
    rows = (random.integers(0, 3, (count, width)) * 60).astype(np.uint8).view(dtype)
    known = random.random(count) < 0.8
    segment = build(words, np.arange(count, dtype=np.uint32))
    asked = random.integers(0, count, queries)
    aligned = align(segment, rows, known, rows[asked])
    hits, _ = segment.nearest(words[asked][:, None], k, rows=aligned)
    inside = refine(segment.range_search(words[asked][:, None], 2), aligned)
    rescored = rescore_hits(hits, max(1, k // 2))
    for q, item in enumerate(asked.tolist()):
        expected = reference(words, rows, known, words[item], rows[item])
        assert found(hits, q) == expected[:k]
        assert found(inside, q) == [each for each in expected if each[0] <= 2]
        best = sorted(expected[:k], key=lambda each: (each[1], each[0], each[2]))
        assert found(rescored, q) == best[: max(1, k // 2)]


@pytest.mark.parametrize("build", [flat, clustered])
def test_a_search_without_rows_orders_ties_by_item_id(build: Any) -> None:
    words = np.zeros(600, np.uint64)
    hits, _ = build(words, np.arange(600, dtype=np.uint32)).nearest(words[:1, None], 5)
    assert found(hits, 0) == [(0, 0, item_id) for item_id in range(5)]
