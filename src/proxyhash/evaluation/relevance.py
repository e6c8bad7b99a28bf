"""Which items are relevant to which queries: those of the same class, or those that share at least one tag."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.bits import Words, to_words
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class Relevance:
    """Labels of queries and database in the form the counting needs: class numbers, or tags as words of bits."""

    query_classes: NDArray[np.int64] | None = None
    """(Q,), if there are classes."""
    database_classes: NDArray[np.int64] | None = None
    """(N,), numbered like the queries'."""
    query_tags: Words | None = None
    """(Q, W), if there are tags."""
    database_tags: Words | None = None
    """(W, N)."""

    def matrix(self, rows: slice) -> NDArray[np.bool_]:
        """Return which items are relevant to the queries in `rows`, as a full matrix (rows, N)."""
        if self.query_tags is None or self.database_tags is None:
            assert self.query_classes is not None
            same: NDArray[np.bool_] = self.query_classes[rows, None] == self.database_classes
            return same
        shared = np.zeros((len(self.query_tags[rows]), self.database_tags.shape[1]), bool)
        for part, items in enumerate(self.database_tags):
            shared |= (self.query_tags[rows, part, None] & items) != 0
        return shared


def relevance(query_labels: ArrayLike, database_labels: ArrayLike, queries: int, items: int) -> Relevance:
    """Check labels and bring them into one form.

    Both are lists of class labels (of any kind that can be compared for equality: numbers or names), or both are matrices
    (items, tags) of 0 and 1.
    """
    q, db = np.asarray(query_labels), np.asarray(database_labels)
    for name, labels, count in (("query", q, queries), ("database", db, items)):
        if labels.ndim not in (1, 2) or len(labels) != count:
            raise InputError(f"The {name} labels have shape {labels.shape}, but there are {count} {name} codes.")
    if q.shape[1:] != db.shape[1:]:
        raise InputError(f"Labels of shapes {q.shape} and {db.shape} cannot be compared: both classes, or the same tags.")
    return _classes(q, db) if q.ndim == 1 else _tags(q, db)


def _classes(q: NDArray[np.generic], db: NDArray[np.generic]) -> Relevance:
    for labels in (q, db):
        if labels.dtype.kind == "O" or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
            raise InputError("Class labels must be numbers or names, all of them present.")
    if (q.dtype.kind in "US") != (db.dtype.kind in "US"):
        raise InputError(f"Labels of types {q.dtype} and {db.dtype} cannot be compared.")
    if q.dtype.kind in "iu" and db.dtype.kind in "iu":  # numbers already
        return Relevance(query_classes=q.astype(np.int64), database_classes=db.astype(np.int64))
    _, numbers = np.unique(np.concatenate([q, db]), return_inverse=True)
    return Relevance(query_classes=numbers[: len(q)].astype(np.int64), database_classes=numbers[len(q) :].astype(np.int64))


def _tags(q: NDArray[np.generic], db: NDArray[np.generic]) -> Relevance:
    for tags in (q, db):
        if tags.shape[1] == 0 or not (tags.dtype == bool or np.isin(tags, (0, 1)).all()):
            raise InputError("Tags must be matrices (items, tags) of 0 and 1.")
    rows, columns = (to_words(np.packbits(tags.astype(bool), axis=1, bitorder="little")) for tags in (q, db))
    return Relevance(query_tags=np.ascontiguousarray(rows.T), database_tags=columns)
