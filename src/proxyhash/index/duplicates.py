"""Near duplicates: groups of items that are linked by pairs at most so many bits apart, exactly and in bounded memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index import grouping_kernels
from proxyhash.index.embedded import EmbeddedIndex
from proxyhash.index.items import items_at
from proxyhash.index.memory import Snapshot
from proxyhash.index.segment import Groups, Segment, grouped_segment
from proxyhash.support.checks import whole_number
from proxyhash.support.progress import Progress, silent

_AT_ONCE = 4096  # codes between two signs of life


@dataclass(frozen=True)
class NearDuplicates:
    """One group of items that are alike, in the order in which they were added."""

    keys: Sequence[str]

    def __repr__(self) -> str:
        """Say how many there are, and the first of them."""
        return f"NearDuplicates({len(self.keys):,} like {self.keys[0]!r})"


def near_duplicates(index: EmbeddedIndex, radius: int = 0, *, progress: Progress = silent) -> list[NearDuplicates]:
    """Return all groups of at least two items linked by pairs within `radius` bits, the largest first.

    Two items of a group may be farther apart than the radius, if others lie between them.
    """
    radius = whole_number("radius", radius, at_least=0)
    snapshot = index.memory.snapshot()
    positions, owner = linked(snapshot, radius, progress)
    order = np.lexsort((positions, owner))
    first = np.flatnonzero(np.r_[True, np.diff(owner[order]) > 0]) if len(order) else np.zeros(0, np.int64)
    parts = [part for part in np.split(positions[order], first[1:]) if len(part) > 1]
    known = items_at(index.store, (int(position) for part in parts for position in part))
    groups = [[known[int(p)].key for p in part if int(p) in known] for part in parts]
    return [NearDuplicates(keys) for keys in sorted(groups, key=lambda keys: (-len(keys), keys)) if len(keys) > 1]


def linked(snapshot: Snapshot, radius: int, progress: Progress = silent) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions of all codes (N,), and for each the number of the connected component it belongs to.

    Equal codes are one: only distinct ones are compared, so that a thousand copies of an image are not a million pairs.
    """
    if not len(snapshot):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    words = np.concatenate([segment.words for segment in snapshot.segments], axis=1)
    positions = np.concatenate([segment.positions for segment in snapshot.segments]).astype(np.int64)
    distinct, code = _distinct(words)
    if not radius:
        return positions, code
    segment = _segment(distinct, snapshot.main.groups)
    parent = np.arange(len(segment))
    for first in range(0, len(segment), _AT_ONCE):
        progress("comparing codes", first / len(segment))
        last = min(first + _AT_ONCE, len(segment))
        if segment.groups is None:
            grouping_kernels.link_plain(segment.words, radius, parent, first, last)
        else:
            g = segment.groups
            grouping_kernels.link_grouped(segment.words, g.centres, g.shells, radius, parent, first, last)
    component = np.empty(len(segment), np.int64)
    component[segment.positions] = _settled(parent)
    return positions, component[code]


def _segment(distinct: Words, groups: Groups | None) -> Segment:
    """Return distinct codes (W, n) as a segment whose positions are their numbers, in the groups of the index."""
    numbers = np.arange(distinct.shape[1], dtype=np.uint32)
    if groups is None:
        return Segment(distinct, numbers)
    own = np.empty(len(numbers), np.uint16)
    centres = np.ascontiguousarray(groups.centres.T)
    grouping_kernels.nearest_centres(distinct, centres, own)
    sizes = np.bincount(own, minlength=len(centres)).astype(np.int64)
    return grouped_segment(centres, sizes, lambda take: take(distinct, numbers, own))


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
