"""Checks that an index on Milvus gives the same matches as a local index."""

import itertools
from tempfile import TemporaryDirectory

import numpy as np

from helpers.codes import clustered_codes, make_keys
from proxyhash import Index
from proxyhash.index import Matches

_numbers = itertools.count()


def unique_name() -> str:
    """Return a name that no other collection has."""
    return f"c{next(_numbers)}"


def check_same_matches(server: str, bits: int, items: int, k: int, seed: int) -> None:
    """Compare with the local index: equal distances, equal sets below the k-th one, and all within a radius."""
    width = (bits + 7) // 8
    last = np.array([0xFF] * (width - 1) + [0xFF >> (-bits % 8)], np.uint8)
    codes, queries = clustered_codes(items, width, seed) & last, clustered_codes(5, width, seed + 1) & last
    name = unique_name()
    with (
        TemporaryDirectory() as folder,
        Index.open(f"{folder}/i", bits=bits) as local_index,
        Index.open(f"{server}/{name}", bits=bits) as milvus,
    ):
        for index in (local_index, milvus):
            index.add(codes, make_keys(items))
            index.add(codes[: items // 2][::-1], make_keys(items // 2))  # other codes for the same keys
            index.remove(make_keys(items // 3))
        assert len(milvus) == len(local_index)
        for ours, theirs in zip(local_index.search(queries, k), milvus.search(queries, k), strict=True):
            assert distances(ours) == distances(theirs)
            furthest = max(distances(ours))
            assert below(ours, furthest) == below(theirs, furthest)
        radius = seed % (bits + 1)
        for ours, theirs in zip(
            local_index.range_search(queries, radius), milvus.range_search(queries, radius), strict=True
        ):
            assert below(ours, bits + 1) == below(theirs, bits + 1)
            assert distances(theirs) == sorted(distances(theirs))


def distances(matches: Matches) -> list[int]:
    return [match.distance for match in matches]


def below(matches: Matches, distance: int) -> set[tuple[str, int]]:
    return {(match.key, match.distance) for match in matches if match.distance < distance}
