"""State files: the groups of a search for near duplicates, so that a later one compares only what was added since."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.index.duplicates.groups import Groups, KnownGroups, Thresholds
from proxyhash.index.item_ids import Int64s
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format, dump_json, read_json

FORMAT = "proxyhash.duplicates/1"


@dataclass(frozen=True)
class SearchId:
    """What was searched, and how: groups of another index, version of the codes, threshold or refiner are of no use."""

    index_id: str
    version: int
    thresholds: Thresholds
    refiner: str | None


@dataclass(frozen=True, eq=False)
class State:
    """The groups of one generation of an index, and the ids that were compared, as ranges (n, 2)."""

    search: SearchId
    generation: int
    known: KnownGroups


def read_state(path: Path, search: SearchId, generation: int) -> KnownGroups | None:
    """Return the groups of an earlier search; None if there is no file, or it was another search of the same index.

    Raises
    ------
    InputError
        If the file is something else or damaged, or of another index: it would be overwritten.
    """
    if not path.exists():
        return None
    content = read_json(path)
    fields = content if isinstance(content, dict) else {}
    check_format(path, fields.get("format"), (FORMAT,), fields.get(REQUIRES))
    try:
        state = _parse(fields)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{path} is damaged; delete it, and all items are compared.") from None
    if state.search.index_id != search.index_id:
        raise InputError(f"{path} is of another index; give a file for each index.")
    return state.known if state.search == search and state.generation <= generation else None


def _parse(fields: dict[str, Any]) -> State:
    thresholds = Thresholds(fields["radius"], fields["refine_radius"])
    search = SearchId(fields["index_id"], fields["version"], thresholds, fields["refiner"])
    sizes = [len(group) for group in fields["groups"]]
    item_ids = np.array([item_id for group in fields["groups"] for item_id in group], np.int64)
    groups = Groups(item_ids, np.r_[0, np.cumsum(np.array(sizes, np.int64))], np.zeros(len(item_ids), bool))
    ranges = np.array(fields["compared"], np.int64).reshape(-1, 2)
    if min(sizes, default=2) < 2 or (np.diff(ranges.ravel()) < 0).any() or len(np.unique(item_ids)) < len(item_ids):
        raise ValueError
    return State(search, int(fields["generation"]), KnownGroups(ranges, groups))


def write_state(path: Path, search: SearchId, generation: int, item_ids: Int64s, groups: Groups) -> None:
    """Write the groups of a search that compared these items (N,), ascending; the file is complete or the old one."""
    fields = {
        "format": FORMAT,
        REQUIRES: RELEASE,
        "index_id": search.index_id,
        "version": search.version,
        "generation": generation,
        "radius": search.thresholds.radius,
        "refine_radius": search.thresholds.refine_radius,
        "refiner": search.refiner,
        "compared": id_ranges(item_ids).tolist(),
        "groups": [groups.members(group).tolist() for group in range(len(groups))],
    }
    with atomic_write(path) as temporary:
        temporary.write_text(dump_json(fields), encoding="utf-8")


def id_ranges(item_ids: Int64s) -> Int64s:
    """Return ascending ids (N,) as ranges (n, 2) of ids that follow each other, first and last.

    >>> id_ranges(np.array([3, 4, 5, 9])).tolist()
    [[3, 5], [9, 9]]
    """
    gaps = np.flatnonzero(np.diff(item_ids) > 1)
    firsts, lasts = np.r_[0, gaps + 1], np.r_[gaps, len(item_ids) - 1]
    return np.stack([item_ids[firsts], item_ids[lasts]], axis=1) if len(item_ids) else np.zeros((0, 2), np.int64)
