"""Sorting of refined searches, compared with NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.processor_features import WITHOUT_WIDE_REGISTERS, needs_x86, run_with_all_features, run_with_features
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
@pytest.mark.parametrize(
    ("width", "dtype"),
    [(8, np.uint8), (16, np.uint8), (32, np.uint8), (5, np.int8), (64, np.int8), (75, np.int8), (256, np.int8)],
)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(1, 900),  # several blocks, so that most ties are dropped before they are pushed
    k=st.sampled_from([1, 2, 7, 12, 100]),
    queries=st.integers(1, 6),
    step=st.sampled_from([1, 60, 85]),
    known_share=st.sampled_from([0.0, 0.05, 0.8, 1.0]),
    threads=st.sampled_from([1, 2]),
)
def test_the_order_is_distance_then_refinement_then_item_id(
    build: Any,
    width: int,
    dtype: Any,
    seed: int,
    count: int,
    k: int,
    queries: int,
    step: int,
    known_share: float,
    threads: int,
) -> None:
    random = np.random.default_rng(seed)
    words = random.choice(np.array([0, 1, 3, 2**63, 2**64 - 1], np.uint64), count)
    rows = (random.integers(0, 3, (count, width)) * step - step).astype(np.int8).view(dtype)  # few values: equal distances
    rows[:: 3 if seed % 2 else 10_000] = random.integers(-127, 128, width, np.int8).view(dtype)
    known = random.random(count) < known_share
    segment = build(words, np.arange(count, dtype=np.uint32))
    asked = random.integers(0, count, queries)
    aligned = align(segment, rows, known, rows[asked])
    hits, _ = segment.nearest(words[asked][:, None], k, threads, rows=aligned)
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


@pytest.mark.parametrize("width", [1, 31, 32, 33, 64, 100, 256])
def test_largest_differences_of_int8_values_do_not_overflow(width: int) -> None:
    rows = np.full((300, width), -127, np.int8)
    rows[290:, 0] = 127
    words = np.zeros(300, np.uint64)
    segment = clustered(words, np.arange(300, dtype=np.uint32))
    query = np.full((1, width), 127, np.int8)
    hits, _ = segment.nearest(words[:1, None], 12, rows=align(segment, rows, np.ones(300, bool), query))
    assert found(hits, 0) == reference(words, rows, np.ones(300, bool), words[0], query[0])[:12]


PROGRAM = """
import json
import numpy as np
from proxyhash.index.clusters.clustered import build_clustered_segment
from proxyhash.index.refinement.distances import refined_rows
from proxyhash.utils.jit import cold_start
cold_start.end()
random, found = np.random.default_rng(0), {}
words, item_ids = random.integers(0, 2, (1, 3000)).astype(np.uint64), np.arange(3000, dtype=np.uint32)
own = np.zeros(3000, np.uint16)
segment = build_clustered_segment(np.zeros((1, 1), np.uint64), np.array([3000]), lambda sink: sink(words, item_ids, own))
for width, dtype in ((16, np.uint8), (32, np.uint8), (5, np.int8), (64, np.int8), (75, np.int8), (256, np.int8)):
    rows = random.integers(-127, 128, (segment.num_slots, width), np.int8)
    queries = random.integers(-127, 128, (9, width), np.int8)
    aligned = refined_rows(rows.view(dtype), segment.slot_ids() >= 0, queries.view(dtype))
    hits, _ = segment.nearest(np.zeros((9, 1), np.uint64), 10, rows=aligned)
    found[f"{np.dtype(dtype).name} {width}"] = [str(rank) for rank in hits.ranks.tolist()]
print(json.dumps(found))
"""


@needs_x86
@pytest.mark.parametrize("features", WITHOUT_WIDE_REGISTERS)
def test_results_are_equal_without_wide_registers(features: str, tmp_path: Path) -> None:
    found = run_with_features(PROGRAM, features, tmp_path)
    assert found == run_with_all_features(PROGRAM)
