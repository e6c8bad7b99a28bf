"""Search results before items are looked up: packed ranks of distance, refinement and item id."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.item_ids import Int64s

ID_BITS, REFINEMENT_BITS = 32, 19  # of a rank; the distance has the 13 highest bits
NO_ROW = (1 << REFINEMENT_BITS) - 1  # refinement distance of items without a row, which come last
DISTANCE_SHIFT = ID_BITS + REFINEMENT_BITS
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False)
class SearchStats:
    """How the hits of Q queries were found: the plan of each, and the number of codes that it was compared with, (Q,)."""

    plans: tuple[str, ...]
    compared: Int64s

    def of_query(self, query: int) -> tuple[str, int]:
        """Return the plan of a query, and the number of codes."""
        return self.plans[query], int(self.compared[query])


@dataclass(frozen=True, eq=False)
class Hits:
    """Codes found for Q queries, best first; those of query q are `offsets[q]` to `offsets[q + 1]`.

    A rank packs the distance, the refinement distance and the item id, from high to low bits: sorting ranks sorts by
    distance, then by refinement, then by item id. Without a refinement its distance is 0.
    """

    ranks: Words
    """(n,)"""
    offsets: Int64s
    """(Q + 1,)"""
    slots: Int64s
    """(n,): where the codes lie in the segment that was searched"""
    codes: Words | None = None
    """(n, W): the stored codes, if they were asked for"""
    scores: NDArray[np.float32] | None = None
    """(n,): asymmetric distances, if the hits were re-ranked"""
    stats: SearchStats | None = None
    """how they were found, if that was recorded"""
    is_refined: bool = False
    """whether ranks have refinement distances"""

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.offsets) - 1

    @property
    def distances(self) -> NDArray[np.int16]:
        """Return the distances in bits (n,)."""
        return (self.ranks >> np.uint64(DISTANCE_SHIFT)).astype(np.int16)

    @property
    def refinements(self) -> Int64s:
        """Return the refinement distances (n,), 0 if the hits are not refined."""
        return ((self.ranks >> np.uint64(ID_BITS)) & np.uint64(NO_ROW)).astype(np.int64)

    @property
    def item_ids(self) -> Int64s:
        """Return the item ids (n,)."""
        return (self.ranks & _LOW).astype(np.int64)

    @property
    def queries(self) -> Int64s:
        """Return the query of each hit (n,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def take(self, order: Int64s) -> "Hits":
        """Return some hits; `order` holds their indices, those of each query together and queries in their order."""
        counts = np.bincount(self.queries[order], minlength=len(self))
        return Hits(
            self.ranks[order],
            np.concatenate([[0], np.cumsum(counts)]),
            self.slots[order],
            None if self.codes is None else self.codes[order],
            None if self.scores is None else self.scores[order],
            self.stats,
            self.is_refined,
        )


def pack_ranks(distances: NDArray[np.integer[Any]], item_ids: Int64s) -> Words:
    """Return distances and item ids in one number each."""
    return (distances.astype(np.uint64) << np.uint64(DISTANCE_SHIFT)) | item_ids.astype(np.uint64)


def refine_hits(hits: Hits, refinements: Int64s) -> Hits:
    """Return unrefined hits with their refinement distances (n,), in the order of their new ranks."""
    ranks = hits.ranks | (refinements.astype(np.uint64) << np.uint64(ID_BITS))
    return replace(hits, ranks=ranks, is_refined=True).take(np.lexsort((ranks, hits.queries)))


def rescore_hits(hits: Hits, k: int) -> Hits:
    """Return the k best of refined hits by their refinement distance alone; ties are ordered by distance and item id."""
    order = np.lexsort((hits.ranks, hits.refinements, hits.queries))
    return keep_best(hits.take(order), k)


def rectangular_hits(ranks: Words, slots: Int64s, *, is_refined: bool = False) -> Hits:
    """Return hits of Q queries that found k codes each, from arrays (Q, k)."""
    queries, k = ranks.shape
    return Hits(ranks.ravel(), k * np.arange(queries + 1), slots.ravel(), is_refined=is_refined)


def merge_hits(parts: Sequence[Hits], queries: int, k: int | None = None) -> Hits:
    """Return the hits of several segments as one, sorted by rank; with `k`, only the k best of each query."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return rectangular_hits(np.zeros((queries, 0), np.uint64), np.zeros((queries, 0), np.int64))
    ranks = np.concatenate([part.ranks for part in parts])
    owners = np.concatenate([part.queries for part in parts])
    order = np.lexsort((ranks, owners))
    counts = np.bincount(owners, minlength=queries)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    codes = [part.codes for part in parts if part.codes is not None]
    slots = np.concatenate([part.slots for part in parts])
    merged = Hits(
        ranks[order],
        offsets,
        slots[order],
        np.concatenate(codes)[order] if codes else None,
        is_refined=any(part.is_refined for part in parts),
    )
    return merged if k is None else keep_best(merged, k)


def merge_stats(parts: Sequence[Hits], queries: int) -> SearchStats:
    """Return how the hits of several segments were found: the plan of the first one, and all codes that were compared."""
    known = [part.stats for part in parts if part.stats is not None]
    plans = known[0].plans if known else ("scan",) * queries
    return SearchStats(plans, sum((stats.compared for stats in known), np.zeros(queries, np.int64)))


def spread_hits(hits: Hits, queries: Int64s, total: int) -> Hits:
    """Return the hits of some of `total` queries as hits of all; `queries` (n,) are their ascending numbers."""
    counts = np.zeros(total, np.int64)
    counts[queries] = np.diff(hits.offsets)
    return replace(hits, offsets=np.concatenate([[0], np.cumsum(counts)]))


def keep_best(hits: Hits, k: int) -> Hits:
    """Return the first k hits of each query."""
    index_in_query = np.arange(len(hits.ranks)) - hits.offsets[hits.queries]
    return hits.take(np.flatnonzero(index_in_query < k))


def asymmetric_distances(embeddings: NDArray[np.float32], words: Words) -> NDArray[np.float32]:
    """Return the distances (Q, k) of real-valued queries (Q, bits) to stored codes `words` (Q, k, W).

    A bit that differs costs |nu| instead of 1: sum over i of |nu_i| [b_i != sgn nu_i] = (sum |nu_i| - nu.b) / 2. This orders
    as the inner product nu.b does. It is in bits: a query with all |nu_i| = 1 has its Hamming distances.
    """
    bits = embeddings.shape[1]
    on = np.unpackbits(words.view(np.uint8), axis=2, count=bits, bitorder="little")
    stored = on.astype(np.float32) * 2 - 1
    dots = np.einsum("qkb,qb->qk", stored, embeddings)
    distances: NDArray[np.float32] = (np.abs(embeddings).sum(1)[:, None] - dots) / 2
    np.maximum(distances, 0, out=distances)  # rounding may leave a zero just below
    return distances


def rerank_hits(hits: Hits, embeddings: NDArray[np.float32], k: int) -> Hits:
    """Return the k best hits of each query by asymmetric distance to its embedding; ties are ordered by rank."""
    if hits.codes is None or not len(hits.ranks):
        return hits
    counts = np.diff(hits.offsets)
    columns = np.arange(counts.max())
    held = columns < counts[:, None]
    index = np.where(held, hits.offsets[:-1, None] + columns, 0)
    scores = asymmetric_distances(embeddings, np.ascontiguousarray(hits.codes[index]))
    rounded = np.where(held, np.round(scores, 6), np.inf)
    order = np.stack([np.lexsort((ranks, row)) for ranks, row in zip(hits.ranks[index], rounded, strict=True)])
    kept = (columns < np.minimum(counts, k)[:, None])[:, :k]
    flat = np.empty(len(hits.ranks), np.float32)
    flat[index[held]] = scores[held]
    return replace(hits, scores=flat).take(np.take_along_axis(index, order, 1)[:, :k][kept])
