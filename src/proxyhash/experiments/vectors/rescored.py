"""Codes whose nearest candidates are sorted by a refinement, as `Index.search(oversample=...)` does."""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, to_words
from proxyhash.evaluation.compression import RankingScores, RankingTask
from proxyhash.evaluation.neighbors import neighbor_recall
from proxyhash.experiments.vectors.report import EncodingResult
from proxyhash.experiments.vectors.sample import VectorSample
from proxyhash.index.clusters.segment import Segment, build_flat_segment
from proxyhash.index.hits import rescore_hits
from proxyhash.index.refinement.distances import RefinedRows, refined_rows
from proxyhash.index.refinement.fitting import fit_refiner
from proxyhash.index.refinement.refiner import Kind
from proxyhash.models.vector_hasher import VectorHasher

OVERSAMPLING = (1, 2, 4, 8)
_QUERIES_PER_BLOCK = 256


@dataclass(frozen=True, eq=False)
class FittedCodes:
    """A fitted method, the codes (N, bytes) of the database, and the seconds that the fit took."""

    title: str
    hasher: VectorHasher
    codes: Packed
    fit_seconds: float

    @property
    def shared_bytes(self) -> int:
        """Return the size of the fitted method, which all items share."""
        return sum(tensor.nbytes for tensor in self.hasher.network.state_dict().values())


def measure_refined(fitted: FittedCodes, kind: Kind, sample: VectorSample, task: RankingTask) -> list[EncodingResult]:
    """Fit a refiner, and rank the queries at each oversampling."""
    begin, hasher = time.perf_counter(), fitted.hasher
    database, queries = hasher.rows(sample.database), hasher.rows(sample.queries)
    refiner = fit_refiner(database, kind)
    fit_seconds = fitted.fit_seconds + time.perf_counter() - begin
    query_codes, known = hasher.encode(queries), np.ones(len(database), bool)
    rows = refined_rows(refiner.encode(database), known, refiner.encode(queries))
    segment, size = _segment(fitted.codes), fitted.codes.shape[1] + refiner.row_width
    shared = refiner.mean.nbytes + refiner.projection.nbytes // 2 + fitted.shared_bytes  # stored in half precision
    results = []
    for times in OVERSAMPLING:
        start = time.perf_counter()
        scores = _score(segment, to_words(query_codes).T, rows, task, times)
        seconds = {"fit": fit_seconds, "rank": time.perf_counter() - start}
        name = f"{fitted.title} + {kind} x{times}"
        results.append(EncodingResult(name, size, shared, scores.recall, None, None, seconds))
    return results


def _segment(codes: Packed) -> Segment:
    item_ids = np.arange(len(codes), dtype=np.uint32)
    no_clusters = np.zeros(len(codes), np.uint16)
    return build_flat_segment(8 * codes.shape[1], len(codes), lambda sink: sink(to_words(codes), item_ids, no_clusters))


def _score(
    segment: Segment, queries: NDArray[np.uint64], rows: RefinedRows, task: RankingTask, oversample: int
) -> RankingScores:
    """Return the recall for each k, of k times `oversample` candidates sorted by refinement."""
    recall = np.zeros((len(queries), len(task.ks)))
    for first in range(0, len(queries), _QUERIES_PER_BLOCK):
        part = np.arange(first, min(first + _QUERIES_PER_BLOCK, len(queries)))
        mine = np.ascontiguousarray(queries[part])
        for column, k in enumerate(task.ks):
            hits, _ = segment.nearest(mine, min(k * oversample, len(segment)), rows=rows.take(part))
            found = rescore_hits(hits, k).item_ids.reshape(len(part), k)
            ranks = np.full((len(part), len(segment)), k, np.int32)
            np.put_along_axis(ranks, found, np.arange(k, dtype=np.int32)[None], axis=1)
            recall[part, column] = neighbor_recall(ranks, task.neighbors[slice(part[0], part[-1] + 1)], [k])[:, 0]
    return task.mean(recall, None)
