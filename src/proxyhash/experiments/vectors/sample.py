"""Database and queries of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.vectors import VectorRows
from proxyhash.data.vectors.subset import select_rows
from proxyhash.evaluation.compression import RankingTask
from proxyhash.evaluation.neighbors import ExactNeighbors, Floats
from proxyhash.evaluation.quantizers import CENTROIDS
from proxyhash.experiments.vectors.config import VectorEvalConfig
from proxyhash.labels import UNLABELED, ClassLabels, Labels
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator

DEFAULT_QUERIES = 1000
FIT_ROWS = 128 * CENTROIDS  # random vectors of the database that quantizers learn from


@dataclass(frozen=True, eq=False)
class VectorSample:
    """Database and queries, with their labels."""

    database: VectorRows
    queries: Floats
    labels: Labels | None
    query_labels: Labels | None
    config: VectorEvalConfig

    def fit_rows(self) -> Floats:
        """Return random vectors of the database that quantizers learn from."""
        if len(self.database) <= FIT_ROWS:
            return self.database[:]
        chosen = generator(self.config.seed, "fit-rows").choice(len(self.database), FIT_ROWS, replace=False)
        return self.database[np.sort(chosen)]

    def task(self, neighbors: ExactNeighbors, ks: Sequence[int]) -> RankingTask:
        """Return what encodings are measured on."""
        if self.labels is None or self.query_labels is None:
            return RankingTask(neighbors, ks)
        labeled = self.query_labels.labeled()
        if not len(labeled):
            raise InputError("None of the queries has a label; leave the labels out, or use more queries.")
        return RankingTask(neighbors, ks, *_comparable(self.query_labels, self.labels), labeled)


def _comparable(queries: Labels, database: Labels) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return classes (Q,) and (N,) with the numbers of the database, or tags; two files may number classes differently."""
    if not isinstance(queries, ClassLabels):
        return queries.values, database.values
    numbers = {name: number for number, name in enumerate(database.names)}
    numbers |= {name: len(numbers) + number for number, name in enumerate(set(queries.names) - numbers.keys())}
    of_queries = np.array([*(numbers[name] for name in queries.names), UNLABELED])  # the last entry serves unlabeled queries
    return of_queries[queries.values], database.values


def draw_sample(
    vectors: VectorRows | NDArray[Any],
    labels: Labels | None,
    queries: VectorRows | NDArray[Any] | None,
    query_labels: Labels | None,
    config: VectorEvalConfig,
) -> VectorSample:
    """Return the vectors that are used, with queries of the file or held out."""
    rows = _rows(vectors, config, "The vectors")
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"There are {len(rows):,} vectors and {len(labels):,} labels.")
    order = generator(config.seed, "vectors").permutation(len(rows))
    used = order if config.max_vectors is None else order[: config.max_vectors]
    if queries is None:
        held_out, kept = _hold_out(used, config.num_queries)
        asked, query_labels = select_rows(rows, held_out)[:], None if labels is None else labels.subset(held_out)
    else:
        given, kept = _rows(queries, config, "The queries"), np.sort(used)
        _check_queries(given, rows, labels, query_labels)
        limit = config.num_queries if config.num_queries is not None else DEFAULT_QUERIES
        chosen = np.sort(generator(config.seed, "queries").permutation(len(given))[:limit])
        asked, query_labels = given[chosen], None if query_labels is None else query_labels.subset(chosen)
    labels = None if labels is None else labels.subset(kept)
    return VectorSample(select_rows(rows, kept), asked, labels, query_labels, config)


def _rows(vectors: VectorRows | NDArray[Any], config: VectorEvalConfig, name: str) -> VectorRows:
    values, name = (vectors.values, vectors.name) if isinstance(vectors, VectorRows) else (vectors, name)
    return VectorRows(values, normalize=config.metric == "cosine", name=name)


def _hold_out(used: NDArray[np.int64], count: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows of the queries and those of the database, both sorted."""
    count = max(1, min(DEFAULT_QUERIES, len(used) // 10)) if count is None else count
    if len(used) - count < 2:
        raise InputError(f"{count:,} queries leave no database of {len(used):,} vectors; hold out fewer.")
    return np.sort(used[:count]), np.sort(used[count:])


def _check_queries(queries: VectorRows, rows: VectorRows, labels: Labels | None, query_labels: Labels | None) -> None:
    if queries.width != rows.width:
        raise InputError(f"{queries.name}: queries have {queries.width} values and the vectors {rows.width}.")
    if query_labels is None:
        return
    if len(query_labels) != len(queries):
        raise InputError(f"There are {len(queries):,} queries and {len(query_labels):,} labels of queries.")
    if labels is None:
        raise InputError("The queries have labels and the vectors have none; give both, or none.")
    if labels.kind != query_labels.kind or (labels.kind == "tags" and labels.names != query_labels.names):
        raise InputError("The labels of the queries and of the vectors must both be classes, or the same tags.")
