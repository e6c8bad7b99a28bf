"""Description of groups: the items of each, which one to keep, and the distances to it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.duplicates.compared import ComparedItems
from proxyhash.index.duplicates.groups import Groups
from proxyhash.index.duplicates.keeping import FileInfo, KeepBest, read_files
from proxyhash.index.duplicates.report import DuplicateGroup, DuplicateItem
from proxyhash.index.item_ids import Int64s
from proxyhash.index.local.items import Item, items_by_id
from proxyhash.index.local.store import Store


class Source(NamedTuple):
    """The file of an index, and its items that were compared."""

    store: Store
    items: ComparedItems


class Members(NamedTuple):
    """The m items of G groups that are described; those of group g are `starts[g]` to `starts[g + 1]`."""

    item_ids: Int64s
    """(m,)"""
    sides: NDArray[np.int64]
    """(m,): 1 for items of the second index"""
    starts: Int64s
    """(G + 1,)"""
    sizes: Int64s
    """(G,): the number of all items of a group"""


def describe_groups(
    groups: Groups, sources: Sequence[Source], keep: KeepBest, max_group: int, *, with_files: bool
) -> tuple[DuplicateGroup, ...]:
    """Return groups with their items, at most `max_group` each; items that were removed meanwhile are left out."""
    members, items = _look_up(_first_members(groups, max_group), sources)
    is_read = with_files or keep.needs_files
    paths = [item.path if item.has_image else None for item in items]
    files: list[FileInfo | None] = list(read_files(paths)) if is_read else [None] * len(items)
    kept = _choose_kept(members, items, files, keep)
    compared = _compared(members, sources)
    bits, refined = compared.distances(kept), compared.refinement_distances(kept)
    described = []
    for row in np.lexsort((bits, kept != np.arange(len(kept)), kept)).tolist():  # those with the same kept one are a group
        item, fine = items[row], None if refined is None else float(refined[row])
        flags = bool(row == kept[row]), bool(members.sides[row])
        described.append(DuplicateItem(item.key, int(bits[row]), fine, item.path, files[row], *flags, item.row))
    bounds = zip(members.starts[:-1].tolist(), members.starts[1:].tolist(), members.sizes.tolist(), strict=True)
    return tuple(DuplicateGroup(tuple(described[first:last]), size) for first, last, size in bounds if last - first > 1)


def _first_members(groups: Groups, max_group: int) -> Members:
    """Return the first items of each group."""
    number = np.repeat(np.arange(len(groups)), groups.sizes)
    listed = np.arange(len(number)) - groups.offsets[number] < max_group
    starts = np.r_[0, np.cumsum(np.minimum(groups.sizes, max_group))]
    return Members(groups.item_ids[listed], groups.is_other[listed].astype(np.int64), starts, groups.sizes)


def _look_up(members: Members, sources: Sequence[Source]) -> tuple[Members, list[Item]]:
    """Return the items of members, and the members without those that do not exist any more."""
    found = [
        items_by_id(source.store, members.item_ids[members.sides == side].tolist()) for side, source in enumerate(sources)
    ]
    numbered = zip(members.sides.tolist(), members.item_ids.tolist(), strict=True)
    items = [found[side].get(item_id) for side, item_id in numbered]
    exists = np.array([item is not None for item in items], bool)
    starts = np.r_[0, np.cumsum(exists)][members.starts]
    sizes = members.sizes - (np.diff(members.starts) - np.diff(starts))
    left = Members(members.item_ids[exists], members.sides[exists], starts, sizes)
    return left, [item for item in items if item is not None]


def _choose_kept(members: Members, items: Sequence[Item], files: Sequence[FileInfo | None], keep: KeepBest) -> Int64s:
    """Return for each member (m,) which one of its group is kept."""
    kept = np.empty(len(items), np.int64)
    for first, last in zip(members.starts[:-1].tolist(), members.starts[1:].tolist(), strict=True):
        if first < last:
            kept[first:last] = first + keep.best(items[first:last], [file or FileInfo() for file in files[first:last]])
    return kept


def _compared(members: Members, sources: Sequence[Source]) -> ComparedItems:
    """Return codes and refinements of the members, in their order."""
    parts = [source.items for source in sources]
    if len(parts) == 1:
        return parts[0].take(parts[0].find_rows(members.item_ids))
    rows = np.where(
        members.sides == 0, parts[0].find_rows(members.item_ids), len(parts[0]) + parts[1].find_rows(members.item_ids)
    )
    return parts[0].join(parts[1]).take(rows)
