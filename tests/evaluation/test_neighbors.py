from itertools import permutations

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from proxyhash import InputError
from proxyhash.data.vectors import VectorRows
from proxyhash.evaluation.neighbors import ExactNeighbors, exact_neighbors, neighbor_recall


def some_vectors(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_neighbors_are_those_of_faiss_and_scikit_learn(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        VectorRows, "slices", lambda self: (slice(i, min(i + 70, len(self))) for i in range(0, len(self), 70))
    )
    normalize = metric == "cosine"
    queries = VectorRows(some_vectors(20, 12, 0), normalize=normalize)[:]
    database = VectorRows(some_vectors(300, 12, 1), normalize=normalize)
    ours = exact_neighbors(queries, database, 15, metric)
    flat = faiss.IndexFlatL2(12) if metric == "l2" else faiss.IndexFlatIP(12)
    flat.add(database[:])
    scores, theirs = flat.search(queries, 15)
    np.testing.assert_array_equal(ours.indices, theirs)
    squares = (queries**2).sum(1, keepdims=True)
    np.testing.assert_allclose(ours.distances + squares if metric == "l2" else ours.distances / -2, scores, atol=1e-4)
    if metric != "ip":
        sklearn_metric = "cosine" if metric == "cosine" else "euclidean"
        search = NearestNeighbors(n_neighbors=15, algorithm="brute", metric=sklearn_metric).fit(database[:])
        np.testing.assert_array_equal(ours.indices, search.kneighbors(queries, return_distance=False))


def test_equal_distances_are_ordered_by_row() -> None:
    database = VectorRows(np.repeat(np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32), 3, axis=0)[[0, 3, 1, 4, 2, 5]])
    found = exact_neighbors(np.array([[-1.0, 0.0], [0.0, 1.0]], np.float32), database, 6, "ip")
    assert found.indices.tolist() == [[1, 3, 5, 0, 2, 4], [0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize(("k", "metric", "sentence"), [(4, "l2", "at most 3"), (1, "manhattan", "There is no metric")])
def test_invalid_searches_are_errors(k: int, metric: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        exact_neighbors(some_vectors(2, 4, 0), VectorRows(some_vectors(3, 4, 1)), k, metric)


def recall_of_every_order(distances: list[int], exact: list[int], k: int) -> float:
    """Return the mean recall over all orders of the items that are sorted by distance."""
    orders = [order for order in permutations(range(len(distances))) if sorted(distances) == [distances[i] for i in order]]
    shares = [len({*order[:k]} & {*exact[:k]}) / k for order in orders]
    return sum(shares) / len(shares)


@given(st.data())
def test_recall_is_the_mean_over_all_orders_of_ties(data: st.DataObject) -> None:
    distances = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
    exact = data.draw(st.permutations(range(len(distances))))
    ks = sorted(data.draw(st.sets(st.integers(1, len(distances)), min_size=1)))
    neighbors = ExactNeighbors(np.array([exact]), np.arange(len(exact), dtype=np.float32)[None])
    ours = neighbor_recall(np.array([distances]), neighbors, ks)
    assert ours[0].tolist() == pytest.approx([recall_of_every_order(distances, exact, k) for k in ks])


def test_the_exact_order_has_recall_1() -> None:
    queries, database = some_vectors(10, 8, 0), VectorRows(some_vectors(50, 8, 1))
    found = exact_neighbors(queries, database, 50, "l2")
    ranks = np.argsort(found.indices, axis=1)
    np.testing.assert_array_equal(neighbor_recall(ranks, found, [1, 10, 50]), 1)
    np.testing.assert_array_equal(neighbor_recall(-ranks, found, [1, 10, 25])[:, :2], 0)


def test_any_of_several_equally_near_items_is_a_neighbor() -> None:
    exact = ExactNeighbors(np.array([[0, 1, 2, 3]]), np.array([[0.5, 0.5, 0.5, 0.9]], np.float32))
    for first in (0, 1, 2):
        assert neighbor_recall(np.where(np.arange(4) == first, 0, 1)[None], exact, [1]).item() == 1
    assert neighbor_recall(np.array([[1, 1, 1, 0]]), exact, [1]).item() == 0
