"""Near duplicates: groups of items that are linked by pairs at most so many bits apart, exactly and in bounded memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.index.clusters import layout_kernels, link_kernels
from proxyhash.index.clusters.clustered import GroupedSegment, grouped_segment
from proxyhash.index.local.index import EmbeddedIndex
from proxyhash.index.local.items import items_at
from proxyhash.index.local.snapshots import Snapshot
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

_AT_ONCE = 4096  # codes between two signs of life


@dataclass(frozen=True)
class NearDuplicates:
    """One group of items that are alike, in the order in which they were added."""

    keys: Sequence[str]

    def __repr__(self) -> str:
        """Say how many there are, and the first of them."""
        return f"NearDuplicates({len(self.keys):,} like {self.keys[0]!r})"


def near_duplicates(index: EmbeddedIndex, radius: int = 0, *, progress: Progress = no_progress) -> list[NearDuplicates]:
    """Return all groups of at least two items linked by pairs within `radius` bits, the largest first.

    Two items of a group may be farther apart than the radius, if others lie between them.
    """
    radius = check_int("radius", radius, minimum=0)
    snapshot = index.memory.snapshot()
    positions, owner = linked(snapshot, radius, progress)
    order = np.lexsort((positions, owner))
    first = np.flatnonzero(np.r_[True, np.diff(owner[order]) > 0]) if len(order) else np.zeros(0, np.int64)
    parts = [part for part in np.split(positions[order], first[1:]) if len(part) > 1]
    known = items_at(index.store, (int(position) for part in parts for position in part))
    groups = [[known[int(p)].key for p in part if int(p) in known] for part in parts]
    return [NearDuplicates(keys) for keys in sorted(groups, key=lambda keys: (-len(keys), keys)) if len(keys) > 1]


def linked(snapshot: Snapshot, radius: int, progress: Progress = no_progress) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of all codes (N,), and for each the number of the connected component it belongs to.

    Equal codes are one: only distinct ones are compared, so that a thousand copies of an image are not a million pairs.
    """
    if not len(snapshot):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    everything = [segment.everything() for segment in snapshot.segments]
    positions = np.concatenate([numbers for _, numbers in everything])
    distinct, code = _distinct(np.concatenate([words for words, _ in everything], axis=1))
    if not radius:
        return positions, code
    if isinstance(snapshot.main, GroupedSegment):
        return positions, _linked_grouped(distinct, snapshot.main.groups.centres, radius, progress)[code]
    parent = np.arange(distinct.shape[1])
    for first in _steps(len(parent), _AT_ONCE, progress):
        link_kernels.link_plain(distinct, radius, parent, first, min(first + _AT_ONCE, len(parent)))
    return positions, _settled(parent)[code]


def _linked_grouped(distinct: Words, centres: Words, radius: int, progress: Progress) -> NDArray[np.int64]:
    """Return the components of distinct codes (W, n), looking only at blocks of the index's groups that can matter."""
    numbers, own = np.arange(distinct.shape[1], dtype=np.uint32), np.empty(distinct.shape[1], np.uint16)
    layout_kernels.nearest_centres(distinct, centres, own)
    sizes = np.bincount(own, minlength=len(centres)).astype(np.int64)
    segment = grouped_segment(centres, sizes, lambda take: take(distinct, numbers, own))
    blocks = len(segment.groups.planes)
    parent = np.arange(BLOCK * blocks)
    at_once = _AT_ONCE // BLOCK
    for first in _steps(blocks, at_once, progress):
        link_kernels.link_grouped(segment.groups, radius, parent, first, min(first + at_once, blocks))
    component, places = np.empty(len(numbers), np.int64), segment.places()
    component[segment.groups.positions.at(places)] = _settled(parent)[places]
    return component


def _steps(count: int, size: int, progress: Progress) -> Iterator[int]:
    """Yield where each step begins, and give a sign of life."""
    for first in range(0, count, size):
        progress("comparing codes", first / count)
        yield first


def _distinct(words: Words) -> tuple[Words, NDArray[np.int64]]:
    """Return the distinct codes (W, n), and which of them each code is (N,)."""
    if len(words) == 1:
        found, inverse = np.unique(words[0], return_inverse=True)
        return found[None], inverse
    found, inverse = np.unique(words, axis=1, return_inverse=True)
    return np.ascontiguousarray(found), inverse.reshape(-1)


def _settled(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the root of every item: ways are short already, and halve with every step."""
    while (parent != parent[parent]).any():
        parent = parent[parent]
    return parent
