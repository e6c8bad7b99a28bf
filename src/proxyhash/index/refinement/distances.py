"""Refinement distances between queries and the codes in some slots, as whole numbers below `NO_ROW`.

A code is compared by its Hamming distance, int8 values by 128 times their Euclidean distance, rounded down.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.index.hits import NO_ROW
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.index.refinement.refiner import Rows
from proxyhash.index.refinement.squares import squared_distance
from proxyhash.utils.jit import jit

STEPS = 128  # of a Euclidean distance of 1; the largest distance is 128 * 254 * sqrt(256), which is below NO_ROW
_PAIRS_PER_CHUNK = 65_536


class RefinedRows(NamedTuple):
    """Rows of Q queries and of the slots of a segment; those of the other kind have no columns."""

    words: Words
    """(slots, w): codes"""
    values: NDArray[np.int8]
    """(slots, v)"""
    known: NDArray[np.bool_]
    """(slots,): whether a slot has a row; (0,) without a refinement"""
    query_words: Words
    """(Q, w)"""
    query_values: NDArray[np.int16]
    """(Q, v): int8 values with the bits that their differences need"""

    def take(self, queries: Int64s) -> "RefinedRows":
        """Return the rows for some of the queries."""
        return self._replace(query_words=self.query_words[queries], query_values=self.query_values[queries])


def refined_rows(rows: Rows, known: NDArray[np.bool_], queries: Rows) -> RefinedRows:
    """Return rows (slots, width) and those of queries (Q, width), both of uint8 or both of int8, for comparison."""
    (words, values), (query_words, query_values) = _split(rows), _split(queries)
    return RefinedRows(_frozen(words), _frozen(values), _frozen(known), query_words, query_values.astype(np.int16))


def without_refinement(queries: int) -> RefinedRows:
    """Return the rows of a search that is not refined."""
    return refined_rows(np.zeros((0, 0), np.uint8), np.zeros(0, np.bool_), np.zeros((queries, 0), np.uint8))


def _split(rows: Rows) -> tuple[Words, NDArray[np.int8]]:
    """Return rows (n, width) as words (n, w) and as values (n, v), one of them without columns."""
    if rows.dtype == np.int8:
        return np.zeros((len(rows), 0), np.uint64), np.ascontiguousarray(rows).view(np.int8)
    return np.ascontiguousarray(rows).view(np.uint64), np.zeros((len(rows), 0), np.int8)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written: rows of an index are so, and numba compiles once for each type."""
    view = array.view()
    view.flags.writeable = False
    return view


@jit(nogil=True, skip_refcounts=True)
def refinement_distance(rows: RefinedRows, q: Int, slot: Int) -> Int:
    """Return the refinement distance of query q and a slot."""
    if not rows.known[slot]:
        return NO_ROW
    compared = compare_rows(rows, q, slot)
    return compared if rows.words.shape[1] else np.int64(STEPS * np.sqrt(np.float64(compared)))


@jit(nogil=True, skip_refcounts=True, inline="always")
def compare_rows(rows: RefinedRows, q: Int, slot: Int) -> Int:
    """Return the Hamming distance of query q and the row in a slot, or of values the square of the Euclidean distance."""
    if not rows.words.shape[1]:
        square: Int = squared_distance(rows.values, slot, rows.query_values, q)
        return square
    bits = np.int64(0)
    for part in range(rows.words.shape[1]):
        bits += np.int64(popcount(rows.query_words[q, part] ^ rows.words[slot, part]))
    return bits


@jit(nogil=True, skip_refcounts=True, inline="always")
def most_compared(rows: RefinedRows, refinement: Int) -> Int:
    """Return the largest result of `compare_rows` that a row of a refinement distance, or of a lower one, can have."""
    return refinement if rows.words.shape[1] else (refinement + 1) * (refinement + 1) // STEPS**2


def refinement_distances(rows: RefinedRows, queries: Int64s, slots: Int64s) -> Int64s:
    """Return the refinement distances (n,) of queries (n,) and slots (n,), with NumPy; see `refinement_distance`."""
    out = np.zeros(len(slots), np.int64)
    for first in range(0, len(slots), _PAIRS_PER_CHUNK):
        part = slice(first, first + _PAIRS_PER_CHUNK)
        q, s = queries[part], slots[part]
        bits = np.bitwise_count(rows.query_words[q] ^ rows.words[s]).sum(1, dtype=np.int64)
        differences = rows.query_values[q].astype(np.int32) - rows.values[s]
        squares = np.einsum("ij,ij->i", differences, differences)
        distances = bits + (STEPS * np.sqrt(squares.astype(np.float64))).astype(np.int64)
        out[part] = np.where(rows.known[s], distances, NO_ROW)
    return out
