"""Codes and refinements of the items that are compared."""

import zlib
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words, to_words
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.item_arrays import list_arrays, read_array
from proxyhash.index.refinement.storage import rows_name

# The largest distances at which 99 % of near pairs were copies of the same photograph, in one half of the photographs of
# Corel-5K; docs/duplicates.md has the measurement, and the result on the other half.
DEFAULT_BITS = {128: 1, 256: 10}
DEFAULT_STEPS = 45


@dataclass(frozen=True, eq=False)
class Refinement:
    """Second representation of N items: codes `words` (V, N), or `values` (N, D) of int8."""

    words: Words | None
    values: NDArray[np.int8] | None
    refiner: str
    """which refiner made them; those of two refiners cannot be compared"""

    @property
    def unit(self) -> str:
        """Return what distances are counted in: bits of codes, or steps of int8 values."""
        return "steps" if self.words is None else "bits"

    def take(self, rows: Int64s) -> "Refinement":
        """Return those of some items."""
        words = None if self.words is None else np.ascontiguousarray(self.words[:, rows])
        return replace(self, words=words, values=None if self.values is None else self.values[rows])

    def join(self, other: "Refinement") -> "Refinement":
        """Return these and those of other items, of the same refiner."""
        words = None if self.words is None or other.words is None else np.concatenate([self.words, other.words], axis=1)
        values = None if self.values is None or other.values is None else np.concatenate([self.values, other.values])
        return replace(self, words=words, values=values)

    def default_radius(self) -> float:
        """Return the distance that was measured with photographs, or a 64th of the bits of codes of other lengths."""
        if self.words is None:
            return float(DEFAULT_STEPS)
        bits = 64 * len(self.words)
        return float(DEFAULT_BITS.get(bits, bits // 64))

    def distances(self, others: Int64s) -> NDArray[np.float64]:
        """Return the distance (N,) of each item to another one, given by its row (N,)."""
        if self.words is not None:
            return hamming(self.words, others).astype(np.float64)
        assert self.values is not None
        differences = self.values.astype(np.float32) - self.values[others]
        distances: NDArray[np.float64] = np.sqrt(np.square(differences).sum(1, dtype=np.float64))
        return distances


@dataclass(frozen=True, eq=False)
class ComparedItems:
    """N items: `item_ids` (N,) ascending, codes `words` (V, N), and their refinement."""

    item_ids: Int64s
    words: Words
    refinement: Refinement | None = None
    num_left_out: int = 0
    """items without a refinement, in an index that has one"""

    def __len__(self) -> int:
        """Return N."""
        return len(self.item_ids)

    def find_rows(self, item_ids: Int64s) -> Int64s:
        """Return the rows (n,) of some items (n,), all of them among these."""
        return np.searchsorted(self.item_ids, item_ids)

    def take(self, rows: Int64s) -> "ComparedItems":
        """Return the items in some rows, in any order."""
        refinement = None if self.refinement is None else self.refinement.take(rows)
        return ComparedItems(self.item_ids[rows], np.ascontiguousarray(self.words[:, rows]), refinement)

    def join(self, other: "ComparedItems") -> "ComparedItems":
        """Return these items and those of another index, whose ids may be the same."""
        pair = self.refinement, other.refinement
        refinement = None if pair[0] is None or pair[1] is None else pair[0].join(pair[1])
        item_ids, words = np.concatenate([self.item_ids, other.item_ids]), np.concatenate([self.words, other.words], axis=1)
        return ComparedItems(item_ids, words, refinement)

    def distances(self, others: Int64s) -> Int64s:
        """Return the distance in bits (N,) of each item to another one, given by its row (N,)."""
        return hamming(self.words, others)

    def refinement_distances(self, others: Int64s) -> NDArray[np.float64] | None:
        """Return the same of refinements, None without any."""
        return None if self.refinement is None else self.refinement.distances(others)

    def columns(self) -> Words:
        """Return all representations as words (V + V2, N)."""
        if self.refinement is None:
            return self.words
        if self.refinement.words is not None:
            return np.concatenate([self.words, self.refinement.words])
        assert self.refinement.values is not None
        return np.concatenate([self.words, to_words(self.refinement.values.view(np.uint8))])


class IndexState(NamedTuple):
    """Which state of which codes was read."""

    index_id: str
    version: int
    generation: int


def read_items(index: LocalIndex, *, refine: bool = True) -> tuple[ComparedItems, IndexState]:
    """Return the items of the last committed state, and which one that is.

    With `refine`, and if the index has a refinement, items without one are left out.
    """
    with index.store.reading():
        snapshot, index_id = index.snapshots.latest(), index.store.meta().index_id
        refiner = _refiner(index, snapshot.version) if refine else None
        row_ids, rows = read_array(index.store, rows_name(snapshot.version)) if refiner is not None else (None, None)
    state = IndexState(index_id, snapshot.version, snapshot.generation)
    segments = [segment.all_codes() for segment in (snapshot.main, snapshot.delta)]
    item_ids = np.concatenate([ids for _, ids in segments])
    order = np.argsort(item_ids)
    items = ComparedItems(item_ids[order], np.concatenate([words for words, _ in segments], axis=1)[:, order])
    if refiner is None or rows is None or row_ids is None:
        return items, state
    _, kept, own = np.intersect1d(items.item_ids, row_ids, assume_unique=True, return_indices=True)
    rows = np.ascontiguousarray(rows[own])
    is_code = rows.dtype == np.uint8
    refinement = Refinement(to_words(rows) if is_code else None, None if is_code else rows.astype(np.int8), refiner)
    words = np.ascontiguousarray(items.words[:, kept])
    return ComparedItems(items.item_ids[kept], words, refinement, len(items) - len(kept)), state


def _refiner(index: LocalIndex, version: int) -> str | None:
    """Return which refiner a version of the codes has: a checksum of its settings; None without refined items."""
    arrays = list_arrays(index.store)
    refiner, rows = arrays.get(f"refiner:{version}"), arrays.get(rows_name(version))
    if refiner is None or rows is None or not rows.num_items:
        return None
    return f"{zlib.crc32(refiner.settings_json.encode()):08x}"


def hamming(words: Words, others: Int64s) -> Int64s:
    """Return the Hamming distance (N,) of each code of `words` (V, N) to another one, given by its row (N,)."""
    distances: Int64s = np.bitwise_count(words ^ words[:, others]).sum(0, dtype=np.int64)
    return distances
