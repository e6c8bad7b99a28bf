"""Re-ranking, search within a radius, and codes of matches."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.codes import clustered_codes, make_keys
from proxyhash import InputError, codes
from proxyhash.index import Index
from proxyhash.index.hits import asymmetric_distances
from proxyhash.index.local import transactions
from proxyhash.index.local.index import LocalIndex


@given(st.integers(0, 99), st.sampled_from([3, 8, 40, 64, 70]))
def test_asymmetric_distances_order_as_inner_products(seed: int, bits: int) -> None:
    random = np.random.default_rng(seed)
    nu, stored = random.uniform(-1, 1, (2, bits)).astype(np.float32), random.random((2, 9, bits)) < 0.5
    words = np.stack([codes.bits.to_words(codes.pack(part)).T for part in stored])
    found = asymmetric_distances(nu, np.ascontiguousarray(words))
    differs = (nu[:, None] >= 0) != stored
    np.testing.assert_allclose(found, (np.abs(nu)[:, None] * differs).sum(2), atol=1e-5)


def test_reranking_settles_ties_by_the_embedding(tmp_path: Path) -> None:
    """Both items are one bit away; the second differs in the bit that the query is least sure of."""
    with Index.open(tmp_path / "i", bits=8) as index:
        index.add(np.array([[0b0001], [0b0010], [0b1111]], np.uint8), ["sure", "unsure", "far"])
        nu = np.array([[-0.9, -0.1, -0.8, -0.8, -1, -1, -1, -1]], np.float32)
        assert index.search(nu, 2)[0].keys == ["sure", "unsure"]
        found = index.search(nu, 2, rerank=3)[0]
        assert [(match.key, match.score) for match in found] == [("unsure", 0.1), ("sure", 0.9)]
        assert index.search(nu, 1, rerank=2)[0].keys == ["unsure"]
        with pytest.raises(InputError, match="Re-ranking needs images, vectors or real-valued embeddings"):
            index.search(np.zeros((1, 1), np.uint8), 2, rerank=3)


def test_search_stops_at_a_radius_and_returns_codes(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=12) as index:
        stored = np.array([[0b0000, 0], [0b0001, 0], [0b0111, 0b1000]], np.uint8)
        index.add(stored, ["zero", "one", "four"])
        nu = np.full((1, 12), -1.0, np.float32)
        for rerank in (None, 3):
            found = index.search(nu, 3, rerank=rerank, radius=1, with_codes=True)[0]
            assert [(match.key, match.code) for match in found] == [("zero", b"\0\0"), ("one", b"\1\0")]
        assert index.search(nu, 3, with_codes=True)[0][2].code == b"\x07\x08"
        assert index.search(nu, 1)[0][0].code is None
        assert index.search(nu, 1, with_codes=True)[0].as_dict()["matches"] == [
            {"key": "zero", "distance": 0, "item_id": 0, "labels": (), "code": "0000"}
        ]


def test_ivf_is_marked_approximate_and_finds_all_with_all_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 500)
    monkeypatch.setattr("proxyhash.index.clusters.centroids.MAX_SCAN_FRACTION", 1.0)
    monkeypatch.setattr("proxyhash.index.local.blocks.CODES_PER_BLOCK", 256)
    stored, queries = clustered_codes(2000, 4, 0), clustered_codes(20, 4, 1)
    with LocalIndex.open_folder(tmp_path / "i", bits=32) as index:
        with pytest.raises(InputError, match="This index is scanned"):
            index.search(queries, 5, nprobe=3)
        index.add(stored[:1990], make_keys(1990))
        index.snapshots.latest()
        index.add(stored[1990:], make_keys(10, 1990))
        exact, all_clusters = index.search(queries, 5), index.search(queries, 5, nprobe=10**6)
        assert {matches.exact for matches in all_clusters} == {False}
        assert [[m.distance for m in row] for row in all_clusters] == [[m.distance for m in row] for row in exact]
        nearest = index.search(queries, 5, nprobe=1)
        hits = [len(set(a.keys) & set(b.keys)) for a, b in zip(exact, nearest, strict=True)]
        assert sum(hits) > 50  # of 100
