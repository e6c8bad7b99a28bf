"""Report of near duplicates: the items of each group, their distances, and which one to keep."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, overload

from proxyhash.index.duplicates.groups import Thresholds
from proxyhash.index.duplicates.keeping import FileInfo


class DuplicateItem(NamedTuple):  # a frozen dataclass takes twice as long to make, and a report may have a million
    """One item of a group.

    Attributes
    ----------
    key
        Key of the item.
    distance
        Number of bits in which its code differs from that of the item to keep.
    refinement
        Distance of its refinement to that of the item to keep; None if refinements were not compared.
    path
        File that the item was added from; None for a code without a file.
    file
        Size of the image and of its file, if they were read.
    is_kept
        Whether this is the item to keep.
    is_other
        Whether it is an item of the index that was compared with.
    row
        Row of the vector in its file; None for an image, and without a file.

    Examples
    --------
    >>> DuplicateItem("cats/7.jpg", 2).name
    'cats/7.jpg'
    """

    key: str
    distance: int
    refinement: float | None = None
    path: Path | None = None
    file: FileInfo | None = None
    is_kept: bool = False
    is_other: bool = False
    row: int | None = None

    @property
    def name(self) -> str:
        """Return the path of an image, or the key of an item without one."""
        return self.key if self.path is None or self.row is not None else str(self.path)

    def as_dict(self) -> dict[str, Any]:
        """Return all fields that are known, for JSON."""
        fields: dict[str, Any] = {"key": self.key, "distance": self.distance}
        optional = {"refinement": self.refinement, "path": None if self.path is None else str(self.path), "row": self.row}
        fields |= {name: value for name, value in optional.items() if value is not None}
        if self.file is not None:
            fields |= {name: value for name, value in self.file._asdict().items() if value}
        return fields | ({"other": True} if self.is_other else {})


@dataclass(frozen=True)
class DuplicateGroup:
    """Near duplicates: the item to keep first, then the nearest.

    `size` counts all items of the group; `items` are those that were added first, if there are more than `max_group`.
    """

    items: tuple[DuplicateItem, ...]
    size: int

    def __repr__(self) -> str:
        """Return the number of items, and the one to keep."""
        return f"DuplicateGroup({self.size:,} like {self.items[0].key!r})"

    @property
    def is_capped(self) -> bool:
        """Return whether the group has more items than are listed."""
        return len(self.items) < self.size

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"size": self.size, "keep": self.items[0].key, "items": [item.as_dict() for item in self.items]}


@dataclass(frozen=True)
class DuplicatesReport(Sequence[DuplicateGroup]):
    """Groups of near duplicates, the largest first.

    Attributes
    ----------
    groups
        The groups.
    thresholds
        Distances up to which two items are near.
    unit
        What distances of refinements are counted in; None if they were not compared.
    num_items
        Items of the index that were searched.
    num_new
        Items that were compared with all others; the rest was known from an earlier search.
    num_left_out
        Items without a refinement, in an index that has one; they are in no group.
    """

    groups: tuple[DuplicateGroup, ...]
    thresholds: Thresholds
    unit: str | None
    num_items: int
    num_new: int
    num_left_out: int = 0

    def __len__(self) -> int:
        """Return the number of groups."""
        return len(self.groups)

    @overload
    def __getitem__(self, index: int) -> DuplicateGroup: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[DuplicateGroup, ...]: ...
    def __getitem__(self, index: int | slice) -> DuplicateGroup | tuple[DuplicateGroup, ...]:
        """Return a group, or some."""
        return self.groups[index]

    def __iter__(self) -> Iterator[DuplicateGroup]:
        """Iterate over the groups, the largest first."""
        return iter(self.groups)

    @property
    def num_duplicates(self) -> int:
        """Return the number of items in groups."""
        return sum(group.size for group in self.groups)

    def others(self) -> Iterator[DuplicateItem]:
        """Yield the items that need not be kept, of the index itself and of groups that are not capped."""
        for group in self.groups:
            if not group.is_capped:
                yield from (item for item in group.items if not item.is_kept and not item.is_other)

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {
            "radius": self.thresholds.radius,
            "refine_radius": self.thresholds.refine_radius,
            "items": self.num_items,
            "compared": self.num_new,
            "left_out": self.num_left_out,
            "duplicates": self.num_duplicates,
            "groups": [group.as_dict() for group in self.groups],
        }
