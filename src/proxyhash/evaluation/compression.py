"""What codes keep of an exact ranking: recall of neighbors and, with labels, mAP, with memory for some queries at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import hamming_distances
from proxyhash.codes.adc import table_scorer
from proxyhash.data.vectors import VectorRows
from proxyhash.evaluation.average_precision import average_precision
from proxyhash.evaluation.metrics import mean_average_precision
from proxyhash.evaluation.neighbors import ExactNeighbors, Floats, asymmetric_distances, neighbor_recall
from proxyhash.evaluation.quantizers import Codes, Quantizer
from proxyhash.evaluation.real_distances import group_ties
from proxyhash.evaluation.relevance import relevance
from proxyhash.utils.parallel import available_threads, ordered_map
from proxyhash.utils.progress import Progress, no_progress

MAX_DISTANCES = 1 << 26  # in memory at once: 256 MB of float32
MAX_CODE_BYTES = 1 << 28  # of codes in memory; more codes are computed again for each block of queries
MAX_PAIRS = 1 << 21  # of queries and items that a thread ranks at once
TIE_STEPS = 1 << 20  # real distances that agree to this part of their range are ties

Distances = NDArray[np.number]


@dataclass(frozen=True, eq=False)
class RankingTask:
    """What every encoding of one database is measured on.

    Parameters
    ----------
    neighbors
        Exact neighbors of the queries.
    ks
        Numbers of neighbors.
    query_labels, database_labels
        Classes (Q,) and (N,), or tags (Q, T) and (N, T) of 0 and 1; None without labels. An unlabeled query has no relevant
        items.
    labeled
        The queries (Q,) that count for mAP; None for all.
    """

    neighbors: ExactNeighbors
    ks: Sequence[int]
    query_labels: ArrayLike | None = None
    database_labels: ArrayLike | None = None
    labeled: NDArray[np.int64] | None = None

    def mean(self, recall: NDArray[np.float64], precision: NDArray[np.float64] | None) -> "RankingScores":
        """Return the means of recall (Q, len(ks)) and of average precision (Q,)."""
        chosen = slice(None) if self.labeled is None else self.labeled
        mean_precision = None if precision is None else float(precision[chosen].mean())
        return RankingScores(dict(zip(self.ks, recall.mean(0).tolist(), strict=True)), mean_precision)


@dataclass(frozen=True)
class RankingScores:
    """Recall by k, and mAP; None without labels."""

    recall: dict[int, float]
    mean_average_precision: float | None


def score_codes(
    queries: NDArray[np.uint8] | Floats, codes: Codes, task: RankingTask, *, progress: Progress = no_progress
) -> RankingScores:
    """Return what codes keep, with the exact mean over all orders of ties.

    Parameters
    ----------
    queries
        Packed codes (Q, bytes), or tables (Q, M, k), see `codes.adc`.
    codes
        Packed codes (N, bytes).
    task
        The neighbors and the labels.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    RankingScores

    Examples
    --------
    >>> from proxyhash.codes import pack
    >>> queries, codes = pack([[1, 1, 1]]), pack([[1, 1, 1], [1, 1, -1], [-1, -1, -1]])
    >>> exact = ExactNeighbors(np.array([[0, 2]]), np.array([[0.0, 0.5]], np.float32))
    >>> score_codes(queries, codes, RankingTask(exact, (1, 2))).recall
    {1: 1.0, 2: 0.5}
    """
    if queries.dtype == np.uint8:
        distances: Callable[[slice], Distances] = lambda rows: hamming_distances(queries[rows], codes)  # noqa: E731
    else:
        scorer = table_scorer(queries, codes)
        distances = lambda rows: _round(scorer(rows))  # noqa: E731
    recall = np.concatenate(
        [
            neighbor_recall(distances(rows), task.neighbors[rows], task.ks)
            for rows in _with_progress(_blocks(len(queries), MAX_DISTANCES // 4 // len(codes)), len(queries), progress)
        ]
    )
    if task.query_labels is None or task.database_labels is None:
        return task.mean(recall, None)
    search = (queries, task.query_labels, codes, task.database_labels)
    return task.mean(recall, mean_average_precision(*search, progress=progress).per_query)


def score_quantizer(
    quantizer: Quantizer, queries: Floats, database: VectorRows, task: RankingTask, *, progress: Progress = no_progress
) -> RankingScores:
    """Return what a fitted quantizer keeps. Distances that agree to a millionth of their range are ties.

    Parameters
    ----------
    quantizer
        A fitted quantizer.
    queries
        Vectors (Q, width).
    database
        Vectors (N, width), encoded in chunks.
    task
        The neighbors and the labels.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    RankingScores

    Examples
    --------
    >>> from proxyhash.evaluation.neighbors import exact_neighbors
    >>> from proxyhash.evaluation.quantizers import Float16
    >>> vectors = np.eye(3, dtype=np.float32)
    >>> task = RankingTask(exact_neighbors(vectors, VectorRows(vectors), 1), (1,))
    >>> score_quantizer(Float16(3, "cosine"), vectors, VectorRows(vectors), task).recall
    {1: 1.0}
    """
    recalls: list[NDArray[np.float64]] = []
    precisions: list[NDArray[np.float64]] = []
    transformed = quantizer.transform(queries)
    labels = None
    if task.query_labels is not None and task.database_labels is not None:
        labels = relevance(task.query_labels, task.database_labels, len(queries), len(database))
    chunks = _decoder(quantizer, database)
    blocks = _blocks(len(queries), MAX_DISTANCES // len(database))
    for block in _with_progress(blocks, len(queries), progress):
        distances = np.empty((block.stop - block.start, len(database)), np.float32)
        for part in database.slices():
            distances[:, part] = asymmetric_distances(transformed[block], *chunks(part))

        def score(rows: slice, distances: Floats = distances, first: int = block.start) -> tuple[NDArray[np.float64], ...]:
            near, whole = _round(distances[rows]), slice(first + rows.start, first + rows.stop)
            recall = neighbor_recall(near, task.neighbors[whole], task.ks)
            relevant = None if labels is None else labels.matrix(whole)
            return (recall,) if relevant is None else (recall, average_precision(group_ties(near, relevant)))

        parts = _blocks(len(distances), MAX_PAIRS // len(database))
        for scores in ordered_map(score, parts, available_threads()):
            recalls.append(scores[0])
            precisions.extend(scores[1:])
    return task.mean(np.concatenate(recalls), np.concatenate(precisions) if precisions else None)


def _decoder(quantizer: Quantizer, database: VectorRows) -> Callable[[slice], tuple[Floats, Floats]]:
    """Return a function from a slice of the database to its decoded vectors and offsets."""
    if len(database) * quantizer.size > MAX_CODE_BYTES:
        return lambda part: quantizer.decode(quantizer.encode(database[part]))
    codes = np.empty((len(database), quantizer.size), np.uint8)
    for part in database.slices():
        codes[part] = quantizer.encode(database[part])
    return lambda part: quantizer.decode(codes[part])


def _round(distances: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return distances (Q, N) as whole numbers of steps of their range, so that rounding errors do not break ties."""
    least = distances.min(axis=1, keepdims=True)
    span = (distances.max(axis=1, keepdims=True) - least).astype(np.float64)
    steps: NDArray[np.float64] = np.rint((distances - least) * (TIE_STEPS / np.where(span > 0, span, 1.0)))
    return steps


def _blocks(count: int, size: int) -> list[slice]:
    size = max(1, size)
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def _with_progress(blocks: Sequence[slice], count: int, progress: Progress) -> Iterator[slice]:
    for block in blocks:
        yield block
        progress("ranking queries", block.stop / count)
