"""Near duplicates: sets of items connected by pairs within a radius, found exactly and in bounded memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.index.clusters import layout_kernels, link_kernels
from proxyhash.index.clusters.clustered import ClusteredSegment, build_clustered_segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.local.items import items_by_id
from proxyhash.index.local.snapshots import Snapshot
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_CODES_PER_STEP = 4096  # codes between two calls of `progress`


@dataclass(frozen=True)
class NearDuplicates:
    """Keys of items that are near duplicates, in the order in which they were added."""

    keys: Sequence[str]

    def __repr__(self) -> str:
        """Return the number of items, and the first of them."""
        return f"NearDuplicates({len(self.keys):,} like {self.keys[0]!r})"


def find_duplicates(index: LocalIndex, radius: int = 0, *, progress: Progress = no_progress) -> list[NearDuplicates]:
    """Return all sets of at least two items connected by pairs within `radius` bits, the largest first.

    Two items of a set may be farther apart than the radius, if others lie between them.
    """
    radius = check_int("radius", radius, minimum=0)
    item_ids, component = connected_components(index.snapshots.latest(), radius, progress)
    order = np.lexsort((item_ids, component))
    first = np.flatnonzero(np.r_[True, np.diff(component[order]) > 0]) if len(order) else np.zeros(0, np.int64)
    parts = [part for part in np.split(item_ids[order], first[1:]) if len(part) > 1]
    items = items_by_id(index.store, (int(item_id) for part in parts for item_id in part))
    sets = [[items[int(item_id)].key for item_id in part if int(item_id) in items] for part in parts]
    return [NearDuplicates(keys) for keys in sorted(sets, key=lambda keys: (-len(keys), keys)) if len(keys) > 1]


def connected_components(snapshot: Snapshot, radius: int, progress: Progress = no_progress) -> tuple[Int64s, Int64s]:
    """Return the item ids of all codes (N,), and the connected component of each (N,).

    Only distinct codes are compared, so that a thousand copies of an image are not a million pairs.
    """
    if not len(snapshot):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    segments = [segment.all_codes() for segment in snapshot.segments]
    item_ids = np.concatenate([ids for _, ids in segments])
    distinct, code = _distinct(np.concatenate([words for words, _ in segments], axis=1))
    if not radius:
        return item_ids, code
    if isinstance(snapshot.main, ClusteredSegment):
        return item_ids, _connect_clusters(distinct, snapshot.main.clusters.centroids, radius, progress)[code]
    parent = np.arange(distinct.shape[1])
    for first in _steps(len(parent), _CODES_PER_STEP, progress):
        link_kernels.link_flat(distinct, radius, parent, first, min(first + _CODES_PER_STEP, len(parent)))
    return item_ids, _find_roots(parent)[code]


def _connect_clusters(distinct: Words, centroids: Words, radius: int, progress: Progress) -> Int64s:
    """Return the components of distinct codes (W, n), comparing only blocks of the index's clusters that can be near."""
    numbers, own = np.arange(distinct.shape[1], dtype=np.uint32), np.empty(distinct.shape[1], np.uint16)
    layout_kernels.nearest_centroids(distinct, centroids, own)
    sizes = np.bincount(own, minlength=len(centroids)).astype(np.int64)
    segment = build_clustered_segment(centroids, sizes, lambda sink: sink(distinct, numbers, own))
    blocks = len(segment.clusters.planes)
    parent = np.arange(BLOCK * blocks)
    step = _CODES_PER_STEP // BLOCK
    for first in _steps(blocks, step, progress):
        link_kernels.link_clustered(segment.clusters, radius, parent, first, min(first + step, blocks))
    component, slots = np.empty(len(numbers), np.int64), segment.slots()
    component[segment.clusters.item_ids.at(slots)] = _find_roots(parent)[slots]
    return component


def _steps(count: int, size: int, progress: Progress) -> Iterator[int]:
    """Yield the first index of each step, and report progress."""
    for first in range(0, count, size):
        progress("comparing codes", first / count)
        yield first


def _distinct(words: Words) -> tuple[Words, Int64s]:
    """Return the distinct codes (W, n), and which of them each code is (N,)."""
    if len(words) == 1:
        found, inverse = np.unique(words[0], return_inverse=True)
        return found[None], inverse
    found, inverse = np.unique(words, axis=1, return_inverse=True)
    return np.ascontiguousarray(found), inverse.reshape(-1)


def _find_roots(parent: Int64s) -> Int64s:
    """Return the root of every item; paths are short already, and halve with every step."""
    while (parent != parent[parent]).any():
        parent = parent[parent]
    return parent
