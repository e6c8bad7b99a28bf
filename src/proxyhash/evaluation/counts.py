"""All that tie-aware metrics need to know: how many items, and how many relevant ones, lie at each distance of a query."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words
from proxyhash.codes.search import checked_words, distances, for_queries
from proxyhash.evaluation.relevance import Relevance, relevance
from proxyhash.support.progress import Progress, silent

Counts = NDArray[np.int64]

_PAIRS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class TieCounts:
    """Per query and distance: `items` and `relevant`, both (Q, bits + 1). A column is a group of tied items."""

    items: Counts
    relevant: Counts

    @property
    def relevant_in_all(self) -> Counts:
        """How many relevant items the database holds for each query (Q,)."""
        total: Counts = self.relevant.sum(axis=1)
        return total


def count_ties(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database_codes: ArrayLike,
    database_labels: ArrayLike,
    *,
    threads: int | None = None,
    progress: Progress = silent,
) -> TieCounts:
    """Count items and relevant items by distance, for packed codes and labels (see `relevance`)."""
    q, db = checked_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    bins = 8 * np.shape(query_codes)[1] + 1
    shape = (len(q), 64 * len(db) + 1)
    items, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    if labels.query_tags is None:
        for_queries(len(q), threads, lambda rows: kernels.histogram_rows(q[rows], db, items[rows]), progress)
        _count_classes(q, db, labels, relevant, threads)
    else:
        tags, item_tags = labels.query_tags, labels.database_tags
        assert item_tags is not None

        def count(rows: slice) -> None:
            kernels.tagged_histogram_rows(q[rows], db, tags[rows], item_tags, items[rows], relevant[rows])

        for_queries(len(q), threads, count, progress)
    return TieCounts(items[:, :bins], relevant[:, :bins])


def _count_classes(q: Words, db: Words, labels: Relevance, out: Counts, threads: int | None) -> None:
    """Bring each class's items together: a query then passes only over those of its own class."""
    assert labels.query_classes is not None
    assert labels.database_classes is not None
    query_order, item_order = _order(labels.query_classes), _order(labels.database_classes)
    query_classes, item_classes = labels.query_classes[query_order], labels.database_classes[item_order]
    grouped_items, grouped_queries = np.ascontiguousarray(db[:, item_order]), q[query_order]
    grouped = np.zeros_like(out)

    def count(rows: slice) -> None:
        for label in np.unique(query_classes[rows]):
            first, last = np.searchsorted(query_classes[rows], [label, label + 1]) + rows.start
            begin, end = np.searchsorted(item_classes, [label, label + 1])
            if end > begin:
                mine = np.ascontiguousarray(grouped_items[:, begin:end])
                kernels.histogram_rows(grouped_queries[first:last], mine, grouped[first:last])

    for_queries(len(q), threads, count)
    out[query_order] = grouped


def _order(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions that bring equal classes together; class numbers that fit 16 bits are sorted by radix."""
    small = classes.min() >= 0 and classes.max() < 2**15
    return np.argsort(classes.astype(np.int16) if small else classes, kind="stable")


def full_rows(
    query_codes: ArrayLike, query_labels: ArrayLike, database_codes: ArrayLike, database_labels: ArrayLike
) -> Iterator[tuple[NDArray[np.int16], NDArray[np.bool_]]]:
    """Yield, for some queries at a time, all distances and which items are relevant, both (queries, N), to be sorted."""
    q, db = checked_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    size = max(1, _PAIRS_AT_ONCE // db.shape[1])
    for first in range(0, len(q), size):
        rows = slice(first, first + size)
        yield distances(np.asarray(query_codes)[rows], database_codes), labels.matrix(rows)
