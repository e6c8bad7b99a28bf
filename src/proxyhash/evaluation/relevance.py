"""Relevance of items to queries: items of the same class, or items that share at least one tag."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.bits import Words, to_words
from proxyhash.utils.errors import InputError


@dataclass(frozen=True, eq=False)
class ClassRelevance:
    """Class numbers of queries (Q,) and database (N,); items of the same class are relevant."""

    query: NDArray[np.int64]
    database: NDArray[np.int64]

    def matrix(self, rows: slice) -> NDArray[np.bool_]:
        """Return which items are relevant to the queries in `rows`, (rows, N)."""
        same: NDArray[np.bool_] = self.query[rows, None] == self.database
        return same


@dataclass(frozen=True, eq=False)
class TagRelevance:
    """Tags as bits of 64-bit words, of queries (Q, W) and database (W, N); items that share a tag are relevant."""

    query: Words
    database: Words

    def matrix(self, rows: slice) -> NDArray[np.bool_]:
        """Return which items are relevant to the queries in `rows`, (rows, N)."""
        shared = np.zeros((len(self.query[rows]), self.database.shape[1]), bool)
        for word, items in enumerate(self.database):
            shared |= (self.query[rows, word, None] & items) != 0
        return shared


Relevance = ClassRelevance | TagRelevance


def relevance(query_labels: ArrayLike, database_labels: ArrayLike, queries: int, items: int) -> Relevance:
    """Check labels and convert them for counting.

    Both are class labels, numbers or names, (Q,) and (N,), or both are matrices (Q, tags) and (N, tags) of 0 and 1.
    """
    q, db = np.asarray(query_labels), np.asarray(database_labels)
    for name, labels, count in (("query", q, queries), ("database", db, items)):
        if labels.ndim not in (1, 2) or len(labels) != count:
            raise InputError(f"The {name} labels have shape {labels.shape}, but there are {count} {name} codes.")
    if q.shape[1:] != db.shape[1:]:
        raise InputError(f"Labels of shapes {q.shape} and {db.shape} cannot be compared: both classes, or the same tags.")
    return _class_relevance(q, db) if q.ndim == 1 else _tag_relevance(q, db)


def _class_relevance(q: NDArray[np.generic], db: NDArray[np.generic]) -> ClassRelevance:
    for labels in (q, db):
        if labels.dtype.kind == "O" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
            raise InputError("Class labels must be numbers or names, all of them present.")
    if (q.dtype.kind in "US") != (db.dtype.kind in "US"):
        raise InputError(f"Labels of types {q.dtype} and {db.dtype} cannot be compared.")
    if q.dtype.kind in "iu" and db.dtype.kind in "iu":
        return ClassRelevance(q.astype(np.int64), db.astype(np.int64))
    _, numbers = np.unique(np.concatenate([q, db]), return_inverse=True)
    return ClassRelevance(numbers[: len(q)].astype(np.int64), numbers[len(q) :].astype(np.int64))


def _tag_relevance(q: NDArray[np.generic], db: NDArray[np.generic]) -> TagRelevance:
    for tags in (q, db):
        if tags.shape[1] == 0 or not (tags.dtype == bool or np.isin(tags, (0, 1)).all()):
            raise InputError("Tags must be matrices (items, tags) of 0 and 1.")
    rows, columns = (to_words(np.packbits(tags.astype(bool), axis=1, bitorder="little")) for tags in (q, db))
    return TagRelevance(np.ascontiguousarray(rows.T), columns)
