"""Near duplicates: groups of items whose codes, and refinements, are near."""

from proxyhash.index.duplicates.find import find_duplicates, radius_of_precision
from proxyhash.index.duplicates.report import DuplicateGroup, DuplicateItem, DuplicatesReport

__all__ = ["DuplicateGroup", "DuplicateItem", "DuplicatesReport", "find_duplicates", "radius_of_precision"]
