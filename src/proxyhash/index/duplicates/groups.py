"""Groups of near duplicates: items that are connected by near pairs, in one index or between two."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.index.duplicates.compared import ComparedItems
from proxyhash.index.duplicates.link_kernels import Parents, flatten, unite_pairs
from proxyhash.index.duplicates.linking import Nodes, link_nodes
from proxyhash.index.item_ids import Int64s
from proxyhash.utils.progress import Progress, no_progress


@dataclass(frozen=True)
class Thresholds:
    """Largest distances of near items: `radius` bits of codes, and `refine_radius` of refinements if these are compared."""

    radius: int
    refine_radius: float | None = None


@dataclass(frozen=True, eq=False)
class Groups:
    """G groups of at least two items, the largest first; the items of group g are `offsets[g]` to `offsets[g + 1]`.

    Items of a group are in the order of their ids; with two indexes, those of the second one come first.
    """

    item_ids: Int64s
    """(m,)"""
    offsets: Int64s
    """(G + 1,)"""
    is_other: NDArray[np.bool_]
    """(m,): whether an item is of the second index"""

    def __len__(self) -> int:
        """Return G."""
        return len(self.offsets) - 1

    def members(self, group: int) -> Int64s:
        """Return the item ids of a group."""
        return self.item_ids[self.offsets[group] : self.offsets[group + 1]]

    @property
    def sizes(self) -> Int64s:
        """Return the number of items of each group (G,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class KnownGroups:
    """Groups of an earlier state of an index: `ranges` (n, 2) of ids that were compared, first and last, and the groups."""

    ranges: Int64s
    groups: Groups


def find_groups(
    items: ComparedItems,
    thresholds: Thresholds,
    known: KnownGroups | None = None,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[Groups, int]:
    """Return the connected components of near items, and how many items were compared with all.

    With groups that are known, only items that were added since are compared.

    Equal items are compared once, so that a thousand copies of an image are not a million pairs.
    """
    first, node = distinct(items.columns())
    is_new, pairs = (np.ones(len(items), bool), np.zeros((0, 2), np.int64)) if known is None else _unknown(items, known)
    is_probe = np.zeros(len(first), bool)
    is_probe[node[is_new]] = True
    order = np.argsort(~is_probe, kind="stable")
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    parents = np.arange(len(order), dtype=np.int32)
    unite_pairs(parents, number[node[pairs[:, 0]]], number[node[pairs[:, 1]]])
    flatten(parents)
    nodes, probes = _nodes(items, first[order], thresholds), int(is_probe.sum())
    roots = link_nodes(nodes, parents, probes=probes, threads=threads, progress=progress)
    return _collect(roots[number[node]], items.item_ids, np.zeros(len(items), bool)), int(is_new.sum())


def find_groups_across(
    items: ComparedItems,
    others: ComparedItems,
    thresholds: Thresholds,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Groups:
    """Return groups of items that are connected by near pairs of an item of one index and an item of the other."""
    parts = [distinct(part.columns()) for part in (items, others)]
    sides = [_nodes(part, first, thresholds) for part, (first, _) in zip((items, others), parts, strict=True)]
    probes = len(sides[0])
    roots = link_nodes(sides[0].join(sides[1]), probes=probes, across=True, threads=threads, progress=progress)
    node = np.concatenate([parts[0][1], parts[1][1] + probes])
    item_ids = np.concatenate([items.item_ids, others.item_ids])
    is_other = np.arange(len(node)) >= len(items)
    linked = np.bincount(roots, minlength=len(roots))[roots[node]] > 1  # equal items of one index alone are no group
    return _collect(roots[node[linked]], item_ids[linked], is_other[linked])


def distinct(words: Words) -> tuple[Int64s, Int64s]:
    """Return where each distinct column of words (V, N) occurs first (n,), and which of these each column is (N,)."""
    order = np.lexsort(words[::-1])
    is_first = np.zeros(len(order), bool)
    is_first[:1] = True
    for word in words:
        is_first[1:] |= word[order[1:]] != word[order[:-1]]
    inverse = np.empty_like(order)
    inverse[order] = np.cumsum(is_first) - 1
    return order[is_first], inverse


def _unknown(items: ComparedItems, known: KnownGroups) -> tuple[NDArray[np.bool_], Int64s]:
    """Return which items must be compared (N,), and pairs of rows (p, 2) that connect the others as before.

    A group that lost an item may fall apart, so that the rest of it is compared again.
    """
    ends = np.concatenate([[-1], known.ranges[:, 1]])
    is_new = items.item_ids > ends[np.searchsorted(known.ranges[:, 0], items.item_ids, side="right")]
    groups = known.groups
    group = np.repeat(np.arange(len(groups)), groups.sizes)
    present = np.isin(groups.item_ids, items.item_ids)
    is_whole = np.bincount(group, ~present, minlength=len(groups)) == 0
    is_new[items.find_rows(groups.item_ids[present & ~is_whole[group]])] = True
    linked = (group[1:] == group[:-1]) & is_whole[group[1:]]
    ones, others = groups.item_ids[:-1][linked], groups.item_ids[1:][linked]
    return is_new, np.stack([items.find_rows(ones), items.find_rows(others)], axis=1)


def _nodes(items: ComparedItems, rows: Int64s, thresholds: Thresholds) -> Nodes:
    """Return the items in some rows as nodes."""
    words = np.ascontiguousarray(items.words[:, rows])
    if items.refinement is None or thresholds.refine_radius is None:
        return Nodes(words, thresholds.radius)
    refinement, limit = items.refinement.take(rows), thresholds.refine_radius
    if refinement.words is not None:
        return Nodes(words, thresholds.radius, refinement.words, int(limit))
    return Nodes(words, thresholds.radius, values=refinement.values, squared_radius=int(limit**2))


def _collect(component: Parents, item_ids: Int64s, is_other: NDArray[np.bool_]) -> Groups:
    """Return the components that have at least two items."""
    order = np.lexsort((item_ids, ~is_other, component))
    starts = np.flatnonzero(np.r_[True, np.diff(component[order]) != 0][: len(order)])
    sizes = np.diff(np.r_[starts, len(order)])
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]
    by_size = np.lexsort((item_ids[order[starts]], -sizes))
    starts, sizes = starts[by_size], sizes[by_size]
    offsets = np.r_[0, np.cumsum(sizes)]
    rows = order[np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])]
    return Groups(item_ids[rows], offsets, is_other[rows])
