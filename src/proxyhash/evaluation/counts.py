"""Numbers of items and of relevant items at each distance of a query, from which tie-aware metrics are computed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words
from proxyhash.codes.histograms import histogram_adder, tagged_histogram_adder
from proxyhash.codes.search import check_words, hamming_distances, parallel_over_queries
from proxyhash.evaluation.relevance import ClassRelevance, TagRelevance, relevance
from proxyhash.utils.progress import Progress, no_progress

Counts = NDArray[np.int64]

_MAX_PAIRS = 4_000_000


@dataclass(frozen=True)
class TieCounts:
    """Numbers of `items` and of `relevant` items for each query and distance, (Q, bits + 1); a column is a group of ties."""

    items: Counts
    relevant: Counts

    @cached_property
    def max_items(self) -> int:
        """Largest number of items that a query is compared with."""
        return int(self.items.sum(axis=1).max(initial=0))

    @cached_property
    def total_relevant(self) -> Counts:
        """Number of relevant items in the database for each query (Q,)."""
        total: Counts = self.relevant.sum(axis=1)
        return total


def count_ties(
    query_codes: ArrayLike,
    query_labels: ArrayLike,
    database_codes: ArrayLike,
    database_labels: ArrayLike,
    *,
    beyond_relevant: bool = True,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> TieCounts:
    """Count items and relevant items by distance, for packed codes and labels (see `relevance`).

    Average precision does not depend on items beyond the last relevant item of a query. Without `beyond_relevant` they may
    be left out, which saves half of the time for codes that cluster by class.
    """
    q, db = check_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    shape = (len(q), 8 * np.shape(query_codes)[1] + 1)
    items, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    if isinstance(labels, ClassRelevance):
        _count_classes(q, db, labels, items, relevant, beyond_relevant, threads, progress)
    else:
        _count_tags(q, db, labels, items, relevant, threads, progress)
    return TieCounts(items, relevant)


def _count_classes(
    q: Words,
    db: Words,
    labels: ClassRelevance,
    items: Counts,
    relevant: Counts,
    beyond: bool,
    threads: int | None,
    progress: Progress,
) -> None:
    """Group the database by class, so that the relevant items of a query are one range of it."""
    order = _group_order(labels.database)
    grouped, classes = np.ascontiguousarray(db[:, order]), labels.database[order]
    begins, ends = _class_ranges(labels.query, classes)
    bits = items.shape[1] - 1
    far = np.full(len(q), bits)
    count_all = histogram_adder(q, grouped, items, far)

    def count(rows: slice) -> None:
        kernels.histogram_parts(q[rows], grouped, begins[rows], ends[rows], relevant[rows])
        if not beyond:
            far[rows] = bits - np.argmax(relevant[rows, ::-1] > 0, axis=1)  # all bits if nothing is relevant
        count_all(rows)

    parallel_over_queries(len(q), threads, count, progress)


def _count_tags(
    q: Words, db: Words, labels: TagRelevance, items: Counts, relevant: Counts, threads: int | None, progress: Progress
) -> None:
    """Count all items and those that share a tag in one pass."""
    count = tagged_histogram_adder(q, db, labels.query, labels.database, items, relevant)
    parallel_over_queries(len(q), threads, count, progress)


def _group_order(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the order that groups equal classes; class numbers of 16 bits are sorted by radix."""
    return np.argsort(classes.astype(np.int16) if _fit_int16(classes) else classes, kind="stable")


def _class_ranges(wanted: NDArray[np.int64], classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each wanted class begins and ends in the sorted `classes`, by counting if their numbers are small."""
    if not (_fit_int16(wanted) and _fit_int16(classes)):
        return np.searchsorted(classes, wanted, "left"), np.searchsorted(classes, wanted, "right")
    ends = np.cumsum(np.bincount(classes, minlength=int(wanted.max()) + 1))
    return np.concatenate([[0], ends[:-1]])[wanted], ends[wanted]


def _fit_int16(classes: NDArray[np.int64]) -> bool:
    return bool(classes.min() >= 0 and classes.max() < 2**15)


def distance_rows(
    query_codes: ArrayLike, query_labels: ArrayLike, database_codes: ArrayLike, database_labels: ArrayLike
) -> Iterator[tuple[NDArray[np.int16], NDArray[np.bool_]]]:
    """Yield all distances and which items are relevant, both (queries, N), for some queries at a time."""
    q, db = check_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    size = max(1, _MAX_PAIRS // db.shape[1])
    for first in range(0, len(q), size):
        rows = slice(first, first + size)
        yield hamming_distances(np.asarray(query_codes)[rows], database_codes), labels.matrix(rows)
