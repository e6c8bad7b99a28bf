"""Searches of every plan, near duplicates and metrics on processors without wide registers, on one thread and on two."""

from pathlib import Path

import pytest

from helpers.processor_features import WITHOUT_WIDE_REGISTERS, needs_x86, run_with_all_features, run_with_features

PROGRAM = """
import json
import numpy as np
from proxyhash.codes import pack
from proxyhash.codes.bits import to_words
from proxyhash.codes.slot_mask import SlotMask
from proxyhash.evaluation import mean_average_precision
from proxyhash.index.clusters.centroids import assign_clusters
from proxyhash.index.clusters.clustered import build_clustered_segment
from proxyhash.index.clusters.segment import flat_segment
from proxyhash.index.duplicates.linking import Nodes, link_nodes
from proxyhash.index.mih.multi_index import build_multi_index
from proxyhash.utils.jit import cold_start

cold_start.end()
random, found = np.random.default_rng(0), {}
item_ids, labels = np.arange(3000, dtype=np.uint32), random.integers(0, 9, 3040)


def checksum(hits):
    return [str(hits.ranks.sum()), int((hits.offsets * np.arange(len(hits.offsets))).sum())]


def results(bits, codes, asked, centers, threads):
    words, queries, own = to_words(codes), np.ascontiguousarray(to_words(asked).T), assign_clusters(codes, centers)
    centroids, sizes = np.ascontiguousarray(to_words(centers).T), np.bincount(own, minlength=len(centers))
    clusters = build_clustered_segment(centroids, sizes, lambda sink: sink(words, item_ids, own), 3000, threads)
    flat = flat_segment(words, item_ids, 8 * codes.shape[1])
    tables = build_multi_index(flat, bits, threads)
    parents = link_nodes(Nodes(words, bits // 20), threads=threads)
    out = {
        "duplicates": [int(parents.sum()), len(np.unique(parents))],
        "mAP": mean_average_precision(asked, labels[3000:], codes, labels[:3000], threads=threads).value,
    }
    for share in (1, 3):
        some, slots = SlotMask.of(item_ids % share == 0), SlotMask.of(clusters.slot_ids() % share == 0)
        nearest = [
            clusters.nearest(queries, 7, threads, slots)[0],
            flat.nearest(queries, 7, threads, some)[0],
            tables.nearest(queries, 7, threads, allowed=some).hits,
        ]
        near = [
            clusters.range_search(queries, bits // 6, threads, slots),
            flat.range_search(queries, bits // 6, threads, some),
            tables.range_search(queries, bits // 6, threads, allowed=some).hits,
        ]
        for name, plans in (("nearest", nearest), ("near", near)):
            sums = [checksum(hits) for hits in plans]
            assert sums[0] == sums[1] == sums[2], (bits, name, sums)
            out[f"{name} of one in {share}"] = sums[0]
    return out


for bits in (64, 192):
    centers = random.random((9, bits)) < 0.5
    values = centers[random.integers(0, 9, 3040)] ^ (random.random((3040, bits)) < 0.1)
    codes = pack(values)
    one, two = (results(bits, codes[:3000], codes[3000:], pack(centers), threads) for threads in (1, 2))
    assert one == two
    found[bits] = one
print(json.dumps(found))
"""


@needs_x86
@pytest.mark.parametrize("features", WITHOUT_WIDE_REGISTERS)
def test_results_are_equal_without_wide_registers(features: str, tmp_path: Path) -> None:
    found = run_with_features(PROGRAM, features, tmp_path)
    assert found == run_with_all_features(PROGRAM)
    assert all(row["near of one in 3"] != row["near of one in 1"] for row in found.values())
