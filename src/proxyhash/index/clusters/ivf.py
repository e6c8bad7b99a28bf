"""The approximate mode: faiss looks only into the groups with the nearest centres, and may miss items."""

from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.codes.bits import Packed, Words
from proxyhash.index.clusters.clustered import GroupedSegment
from proxyhash.index.item_ids import Longs
from proxyhash.index.local.snapshots import Snapshot
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.local.index import EmbeddedIndex


def nearest_approximately(index: "EmbeddedIndex", snapshot: Snapshot, codes: Packed, k: int, groups: int) -> list[Words]:
    """Return keys (distance and position) of up to k near items of each query, from so many groups.

    The structure of faiss holds a second copy of the codes; it is made at the first search and again after a change.
    """
    if not isinstance(snapshot.main, GroupedSegment) or not len(snapshot.main):
        raise InputError("This index is scanned, because it is small or its codes do not cluster: search it exactly.")
    engine, positions = _engine(index, snapshot.main, snapshot.generation)
    engine.nprobe = min(groups, engine.nlist)
    wide = np.zeros((len(codes), engine.code_size), np.uint8)
    wide[:, : codes.shape[1]] = codes
    distances, places = engine.search(wide, min(k, len(snapshot.main)))
    rows = []
    for near, place in zip(distances, places, strict=True):
        found = place >= 0
        keys = (near[found].astype(np.uint64) << np.uint64(32)) | positions[place[found]].astype(np.uint64)
        rows.append(np.sort(keys))
    if not len(snapshot.recent):
        return rows
    from proxyhash.index.local.index import _query_words

    recent, _ = snapshot.recent.nearest(_query_words(codes), k)
    return [np.sort(np.concatenate([row, more]))[:k] for row, more in zip(rows, recent.keys, strict=True)]


def _engine(index: "EmbeddedIndex", segment: GroupedSegment, generation: int) -> Any:
    kept = getattr(index, "_approximate", None)
    if kept is None or kept[0] != generation:
        kept = (generation, *_build(segment))
        index._approximate = kept  # type: ignore[attr-defined]
    return kept[1:]


def _build(segment: GroupedSegment) -> tuple[Any, Longs]:
    """Return faiss's inverted lists with our centres, and the positions of their codes: nothing is trained."""
    try:
        import faiss
    except ImportError:
        raise InputError("The approximate mode needs faiss: pip install 'proxyhash[approximate]'.") from None
    stored, positions = segment.everything()
    bits, centres = 64 * len(stored), segment.groups.centres.view(np.uint8)
    coarse = faiss.IndexBinaryFlat(bits)
    coarse.add(centres)
    engine = faiss.IndexBinaryIVF(coarse, bits, len(centres))
    engine.cp.min_points_per_centroid = 0
    engine.is_trained = True
    engine.add(np.ascontiguousarray(stored.T).view(np.uint8))
    engine.own_fields = True
    coarse.this.disown()  # type: ignore[attr-defined]  # it belongs to the engine now, which deletes it
    return engine, positions
