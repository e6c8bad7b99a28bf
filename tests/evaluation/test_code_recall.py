"""Recall of exact neighbors, against scikit-learn and a plain count of ties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

from proxyhash.codes import hamming_distances, pack
from proxyhash.evaluation.code_recall import MAX_QUERIES, code_recall, query_folds
from proxyhash.utils.errors import InputError


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(2, 40), st.integers(1, 15))
@settings(max_examples=40, deadline=None)
def test_recall_is_the_mean_over_all_orders_of_tied_codes(seed: int, bits: int, items: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    queries, database = rng.normal(size=(5, 6)).astype(np.float32), rng.normal(size=(items, 6)).astype(np.float32)
    q, db = pack(rng.random((5, bits)) < 0.5), pack(rng.random((items, bits)) < 0.5)
    k = min(k, items)
    nearest = NearestNeighbors(n_neighbors=k).fit(database).kneighbors(queries, return_distance=False)
    expected = []
    for row, neighbors in zip(hamming_distances(q, db), nearest, strict=True):
        nearer = (row < row[neighbors, None]).sum(1)
        tied = (row == row[neighbors, None]).sum(1)
        expected.append(np.clip((k - nearer) / tied, 0, 1).mean())
    assert code_recall(queries, database, q, db, k).per_query == pytest.approx(expected)


def test_real_values_as_codes_find_all_neighbors() -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    signs = np.unpackbits(np.arange(60, dtype=np.uint8)[:, None], axis=1)
    close = 2.0 * signs - 1 + 0.01 * vectors  # each vector is next to its own code
    recall = code_recall(close[:10].astype(np.float32), close.astype(np.float32), pack(signs[:10]), pack(signs), k=1)
    assert recall.value == 1
    assert recall.name == "recall@1 of exact neighbors [ties expected]"


@pytest.mark.parametrize("count", [2, 3, 50, MAX_QUERIES + 500])
def test_every_row_is_a_query_once_and_never_finds_itself(count: int) -> None:
    folds = query_folds(count)
    for queries, database in folds:
        assert sorted([*queries, *database]) == list(range(count))
    asked = np.concatenate([queries for queries, _ in folds])
    assert len(asked) == len(set(asked.tolist())) == min(count, MAX_QUERIES)


def test_one_vector_cannot_be_searched() -> None:
    with pytest.raises(InputError, match="A search needs at least two vectors, not 1"):
        query_folds(1)
