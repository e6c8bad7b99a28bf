"""Near duplicates."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from helpers.codes import clustered_codes, make_keys
from proxyhash import InputError, codes
from proxyhash.index.duplicates import find_duplicates
from proxyhash.index.local import transactions
from proxyhash.index.local.index import LocalIndex


def components(stored: np.ndarray, radius: int) -> set[frozenset[str]]:
    """Connect all pairs within the radius, by comparing every one."""
    clusters = {key: {key} for key in make_keys(len(stored))}
    apart = codes.hamming_distances(stored, stored)
    for a, b in combinations(range(len(stored)), 2):
        if apart[a, b] <= radius:
            one, two = clusters[make_keys(1, a)[0]], clusters[make_keys(1, b)[0]]
            if one is not two:
                one |= two
                for key in two:
                    clusters[key] = one
    return {frozenset(cluster) for cluster in clusters.values() if len(cluster) > 1}


@pytest.mark.parametrize("radius", [0, 1, 2, 6])
@pytest.mark.parametrize(("width", "in_clusters"), [(2, False), (2, True), (12, False), (12, True)])
def test_duplicates_are_connected_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, radius: int, width: int, in_clusters: bool
) -> None:
    monkeypatch.setattr(transactions, "MIN_CODES_FOR_CLUSTERS", 100 if in_clusters else 10**9)
    monkeypatch.setattr("proxyhash.index.clusters.centroids.MAX_SCAN_FRACTION", 1.0)
    stored = clustered_codes(250, width, 3, centroids=30, flips=0.03)
    with LocalIndex.open_folder(tmp_path / "i", bits=8 * width) as index:
        index.add(stored[:200], make_keys(200))
        index.snapshots.latest()
        index.add(stored[200:], make_keys(50, 200))
        assert index.info().plan.endswith("clusters") == in_clusters
        found = find_duplicates(index, radius)
        assert {frozenset(cluster.keys) for cluster in found} == components(stored, radius)
        assert [len(cluster.keys) for cluster in found] == sorted((len(cluster.keys) for cluster in found), reverse=True)
        assert repr(found[0]).startswith(f"NearDuplicates({len(found[0].keys)} like 'item/")


def test_empty_index_has_no_duplicates(tmp_path: Path) -> None:
    with LocalIndex.open_folder(tmp_path / "i", bits=64) as index:
        assert find_duplicates(index, 3) == []
        with pytest.raises(InputError, match="radius must be at least 0"):
            find_duplicates(index, -1)
