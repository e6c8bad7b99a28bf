"""Linking of near codes: components, tables, probes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from helpers.codes import clustered_codes
from proxyhash.codes.bits import to_words
from proxyhash.index.duplicates import link_kernels, linking
from proxyhash.index.duplicates.linking import Nodes, link_nodes
from proxyhash.index.duplicates.tables import choose_tables, table_keys

Bools = NDArray[np.bool_]


def all_distances(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    distances: NDArray[np.int64] = np.bitwise_count(words[:, :, None] ^ words[:, None]).sum(0, dtype=np.int64)
    return distances


def smallest_of_component(near: Bools) -> list[int]:
    """Return the smallest number of the component of each node, by scipy."""
    _, label = connected_components(csr_array(near), directed=False)
    smallest = np.full(len(near), len(near))
    np.minimum.at(smallest, label, np.arange(len(near)))
    return list(smallest[label])


@st.composite
def some_words(draw: st.DrawFn, count: int | None = None) -> NDArray[np.uint64]:
    seed, width = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([1, 2, 8, 16, 24]))
    size = draw(st.integers(1, 120)) if count is None else count
    return to_words(clustered_codes(size, width, seed, centroids=draw(st.integers(1, 8)), flips=draw(st.floats(0.0, 0.3))))


@settings(max_examples=150, deadline=None)
@given(words=some_words(), radius=st.integers(0, 70), threads=st.integers(1, 3), across=st.booleans(), data=st.data())
def test_links_are_the_components_of_all_near_pairs_with_a_probe(
    words: NDArray[np.uint64], radius: int, threads: int, across: bool, data: st.DataObject
) -> None:
    count = words.shape[1]
    probes = data.draw(st.integers(0, count))
    is_probe = np.arange(count) < probes
    near = (all_distances(words) <= radius) & ((is_probe[:, None] != is_probe) if across else (is_probe[:, None] | is_probe))
    found = link_nodes(Nodes(words, radius), probes=probes, across=across, threads=threads)
    assert found.tolist() == smallest_of_component(near)


@settings(max_examples=100, deadline=None)
@given(words=some_words(80), second=some_words(80), radius=st.integers(0, 30), limit=st.integers(0, 60))
def test_both_codes_must_be_near(words: NDArray[np.uint64], second: NDArray[np.uint64], radius: int, limit: int) -> None:
    near = (all_distances(words) <= radius) & (all_distances(second) <= limit)
    assert link_nodes(Nodes(words, radius, second, limit)).tolist() == smallest_of_component(near)
    assert link_nodes(Nodes(second, limit, words, radius)).tolist() == smallest_of_component(near)


@settings(max_examples=50, deadline=None)
@given(words=some_words(60), radius=st.integers(0, 30), seed=st.integers(0, 1000), limit=st.integers(0, 500))
def test_int8_values_must_be_near(words: NDArray[np.uint64], radius: int, seed: int, limit: int) -> None:
    values = np.random.default_rng(seed).integers(-128, 128, (60, 5), dtype=np.int8)
    squares = np.square(values[:, None].astype(int) - values).sum(2)
    near = (all_distances(words) <= radius) & (squares <= limit**2)
    found = link_nodes(Nodes(words, radius, values=values, squared_radius=limit**2))
    assert found.tolist() == smallest_of_component(near)


@settings(max_examples=100, deadline=None)
@given(words=some_words(), radius=st.integers(0, 12))
def test_near_codes_share_a_bucket_of_a_table(words: NDArray[np.uint64], radius: int) -> None:
    tables = choose_tables(words, radius, words.shape[1])
    shared = np.zeros((words.shape[1],) * 2, bool)
    for mask in tables.masks:
        keys = table_keys(words, mask)
        shared |= keys[:, None] == keys
    assert shared[all_distances(words) <= radius].all()


def test_tables_of_uniform_codes_compare_few_pairs() -> None:
    words = np.random.default_rng(0).integers(0, 2**64, (1, 100_000), dtype=np.uint64)
    tables = choose_tables(words, 3, 100_000)
    counts = np.concatenate([np.unique(table_keys(words, mask), return_counts=True)[1] for mask in tables.masks])
    assert (counts.astype(float) * (counts - 1) / 2).sum() < 1e6  # of 5e9 pairs


@pytest.mark.parametrize("radius", [3, 12])
def test_many_tiles_on_several_threads_give_the_components(monkeypatch: pytest.MonkeyPatch, radius: int) -> None:
    monkeypatch.setattr(linking, "_MIN_PAIRS", 1)
    words = to_words(clustered_codes(3000, 8, 5, centroids=3, flips=0.1))
    near = all_distances(words) <= radius
    assert link_nodes(Nodes(words, radius), threads=3).tolist() == smallest_of_component(near)
    assert 3000 > 3 * link_kernels.TILE  # buckets of several tiles


def test_known_components_stay() -> None:
    words = np.array([[0, 0xFF00, 0xFF01, 0xFFFFFFFF]], np.uint64)
    parents = np.array([0, 1, 2, 0], np.int32)
    assert link_nodes(Nodes(words, 1), parents).tolist() == [0, 1, 1, 0]
    assert parents.tolist() == [0, 1, 2, 0]  # the argument is not changed


@pytest.mark.parametrize("across", [False, True])
def test_large_components_are_united_by_a_single_pair(across: bool) -> None:
    one = np.arange(512, dtype=np.uint64)
    words = np.concatenate([one, (one << np.uint64(20)) | np.uint64(1 << 50)])[None]  # only 0 and 512 are 1 bit apart
    parents = np.repeat([0, 512], 512).astype(np.int32)
    assert set(link_nodes(Nodes(words, 1), parents, probes=512, across=across).tolist()) == {0}
    assert set(link_nodes(Nodes(words, 0), parents, probes=512, across=across).tolist()) == {0, 512}
