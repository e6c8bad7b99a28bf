"""Approximate search: faiss compares only the codes of the clusters with the nearest centroids."""

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.clusters.segment import Segment
from proxyhash.index.hits import Hits, pack_ranks
from proxyhash.index.item_ids import Int64s
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.clusters.clustered import ClusteredSegment


class InvertedLists:
    """faiss's `IndexBinaryIVF` with the centroids of a segment. It holds a second copy of the codes."""

    def __init__(self) -> None:
        self._segment: weakref.ref[Segment] | None = None  # weak, so that a segment out of use is freed
        self._engine: Any = None
        self._item_ids: Int64s
        self._slots: Int64s

    def nearest(self, segment: Segment, queries: Words, k: int, nprobe: int) -> Hits:
        """Return up to k near codes of each of `queries` (Q, W), from the `nprobe` nearest clusters.

        The lists are built at the first search of a segment.
        """
        from proxyhash.index.clusters.clustered import ClusteredSegment

        if not isinstance(segment, ClusteredSegment) or not len(segment):
            raise InputError("This index is scanned, because it is small or its codes do not cluster: search it exactly.")
        if self._segment is None or self._segment() is not segment:
            self._build(segment)
        self._engine.nprobe = min(nprobe, self._engine.nlist)
        distances, found = self._engine.search(queries.view(np.uint8), min(k, len(segment)))
        held = found >= 0  # faiss fills up with -1
        ranks = pack_ranks(distances[held], self._item_ids[found[held]])
        order = np.lexsort((ranks, np.nonzero(held)[0]))
        return Hits(ranks[order], np.concatenate([[0], np.cumsum(held.sum(1))]), self._slots[found[held]][order])

    def _build(self, segment: "ClusteredSegment") -> None:
        try:
            import faiss
        except ImportError:
            raise InputError("Approximate search needs faiss: pip install 'proxyhash[approximate]'.") from None
        words, self._item_ids = segment.all_codes()
        self._slots = segment.slots()
        bits, centroids = 64 * len(words), segment.clusters.centroids.view(np.uint8)
        coarse = faiss.IndexBinaryFlat(bits)
        coarse.add(centroids)
        self._engine = faiss.IndexBinaryIVF(coarse, bits, len(centroids))
        self._engine.cp.min_points_per_centroid = 0
        self._engine.is_trained = True  # the centroids are given
        self._engine.add(np.ascontiguousarray(words.T).view(np.uint8))
        self._engine.own_fields = True
        coarse.this.disown()  # type: ignore[attr-defined]  # the engine deletes it
        self._segment = weakref.ref(segment)
