"""All that tie-aware metrics need to know: how many items, and how many relevant ones, lie at each distance of a query."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes import kernels
from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced import kernels as bitsliced
from proxyhash.codes.search import check_words, hamming_distances, histogram_adder, parallel_over_queries
from proxyhash.evaluation.relevance import Relevance, relevance
from proxyhash.utils.progress import Progress, no_progress

Counts = NDArray[np.int64]

_MAX_PAIRS = 4_000_000


@dataclass(frozen=True)
class TieCounts:
    """Per query and distance: `items` and `relevant`, both (Q, bits + 1). A column is a group of tied items."""

    items: Counts
    relevant: Counts

    @cached_property
    def max_items(self) -> int:
        """How many items a query is compared with, at most."""
        return int(self.items.sum(axis=1).max(initial=0))

    @cached_property
    def total_relevant(self) -> Counts:
        """How many relevant items the database holds for each query (Q,)."""
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

    Average precision does not depend on what lies beyond a query's last relevant item: without `beyond_relevant` such
    items may be left uncounted, which for codes that keep classes together is half of the work.
    """
    q, db = check_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    bins = 8 * np.shape(query_codes)[1] + 1
    shape = (len(q), 64 * len(db) + 1)
    items, relevant = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    if labels.query_tags is None:
        _count_classes(q, db, labels, items, relevant, beyond_relevant, threads, progress)
    else:
        _count_tags(q, db, labels, items, relevant, threads, progress)
    return TieCounts(items[:, :bins], relevant[:, :bins])


def _count_classes(
    q: Words,
    db: Words,
    labels: Relevance,
    items: Counts,
    relevant: Counts,
    beyond: bool,
    threads: int | None,
    progress: Progress,
) -> None:
    """Bring each class's items together: for its relevant items a query then passes only over those of its own class."""
    assert labels.query_classes is not None
    assert labels.database_classes is not None
    order = _group_order(labels.database_classes)
    grouped, classes = np.ascontiguousarray(db[:, order]), labels.database_classes[order]
    begins, ends = _class_ranges(labels.query_classes, classes)
    far = np.full(len(q), 64)
    count_all = histogram_adder(q, grouped, items, far)

    def count(rows: slice) -> None:
        kernels.histogram_parts(q[rows], grouped, begins[rows], ends[rows], relevant[rows])
        if not beyond and len(db) == 1:
            far[rows] = 64 - np.argmax(relevant[rows, ::-1] > 0, axis=1)  # 64 again if nothing is relevant
        count_all(rows)

    parallel_over_queries(len(q), threads, count, progress)


def _count_tags(
    q: Words, db: Words, labels: Relevance, items: Counts, relevant: Counts, threads: int | None, progress: Progress
) -> None:
    """Count all items and, in the same pass, those that share a tag."""
    assert labels.query_tags is not None
    assert labels.database_tags is not None
    tags, item_tags = labels.query_tags, labels.database_tags
    if bitsliced.is_faster(q, db):
        count = _bitsliced_tag_counter(q, db, tags, item_tags, items, relevant)
    else:

        def count(rows: slice) -> None:
            kernels.tagged_histogram_rows(q[rows], db, tags[rows], item_tags, items[rows], relevant[rows])

    parallel_over_queries(len(q), threads, count, progress)


def _bitsliced_tag_counter(
    q: Words, db: Words, tags: Words, item_tags: Words, items: Counts, relevant: Counts
) -> Callable[[slice], None]:
    odd = np.bitwise_count(db[0]) % 2 == 1
    chosen = [np.flatnonzero(~odd), np.flatnonzero(odd)]
    parts = [(np.take(db, part, axis=1), np.take(item_tags, part, axis=1)) for part in chosen]
    sheets = [bitsliced.tag_planes(marks) for _, marks in parts]

    def count(rows: slice) -> None:
        for (codes, marks), planes in zip(parts, sheets, strict=True):
            bitsliced.tagged_histogram_rows(q[rows], codes, tags[rows], marks, planes, items[rows], relevant[rows])

    return count


def _group_order(classes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions that bring equal classes together; class numbers that fit 16 bits are sorted by radix."""
    return np.argsort(classes.astype(np.int16) if _fit_int16(classes) else classes, kind="stable")


def _class_ranges(wanted: NDArray[np.int64], classes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each wanted class begins and ends among the sorted `classes`: by counting, if their numbers are small."""
    if not (_fit_int16(wanted) and _fit_int16(classes)):
        return np.searchsorted(classes, wanted, "left"), np.searchsorted(classes, wanted, "right")
    ends = np.cumsum(np.bincount(classes, minlength=int(wanted.max()) + 1))
    return np.concatenate([[0], ends[:-1]])[wanted], ends[wanted]


def _fit_int16(classes: NDArray[np.int64]) -> bool:
    return bool(classes.min() >= 0 and classes.max() < 2**15)


def distance_rows(
    query_codes: ArrayLike, query_labels: ArrayLike, database_codes: ArrayLike, database_labels: ArrayLike
) -> Iterator[tuple[NDArray[np.int16], NDArray[np.bool_]]]:
    """Yield, for some queries at a time, all distances and which items are relevant, both (queries, N), to be sorted."""
    q, db = check_words(query_codes, database_codes)
    labels = relevance(query_labels, database_labels, len(q), db.shape[1])
    size = max(1, _MAX_PAIRS // db.shape[1])
    for first in range(0, len(q), size):
        rows = slice(first, first + size)
        yield hamming_distances(np.asarray(query_codes)[rows], database_codes), labels.matrix(rows)
