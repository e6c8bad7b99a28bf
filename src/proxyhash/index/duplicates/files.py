"""Files of a report of near duplicates: a CSV table, and a list of the items that need not be kept."""

import csv
import os
from pathlib import Path

from proxyhash.index.duplicates.report import DuplicateItem, DuplicatesReport
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

COLUMNS = ("group", "group_size", "key", "keep", "other", "distance", "refinement", "width", "height", "bytes", "path")
_ERRORS = "surrogateescape"  # writes names that are not UTF-8 as the bytes that they are


def write_csv(report: DuplicatesReport, path: Path) -> None:
    """Write a row for each listed item; the first of each group is the one to keep.

    Examples
    --------
    >>> import tempfile
    >>> from proxyhash.index.duplicates.groups import Thresholds
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv(DuplicatesReport((), Thresholds(2), None, 0, 0), Path(folder) / "groups.csv")
    ...     (Path(folder) / "groups.csv").read_text().split(",")[:3]
    ['group', 'group_size', 'key']
    """
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8", errors=_ERRORS) as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for number, group in enumerate(report.groups, start=1):
            writer.writerows((number, group.size, *_cells(item)) for item in group.items)


def _cells(item: DuplicateItem) -> tuple[object, ...]:
    """Return the cells of an item after those of its group; what is not known is empty."""
    sizes = ("", "", "") if item.file is None else tuple(number or "" for number in item.file)
    refinement = "" if item.refinement is None else f"{item.refinement:g}"
    flags = tuple("yes" if flag else "no" for flag in (item.is_kept, item.is_other))
    return (item.key, *flags, item.distance, refinement, *sizes, "" if item.path is None else str(item.path))


def write_list(report: DuplicatesReport, path: Path, *, null: bool = False) -> int:
    """Write the paths of the items that need not be kept, or their keys if they have no image; return how many.

    Parameters
    ----------
    report
        The groups. Items of capped groups and of the other index are left out.
    path
        The file to write.
    null
        End each name with a null character instead of a line break, as `xargs -0` reads them.

    Raises
    ------
    InputError
        If a name holds the character that ends names.
    """
    end = b"\0" if null else b"\n"
    names = [os.fsencode(item.name) for item in report.others()]
    for name in names:
        if end in name:
            advice = "remove the item by its key instead" if null else "end names with null characters instead (--null)"
            raise InputError(f"{os.fsdecode(name)!r} holds the character that ends a name; {advice}.")
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"".join(name + end for name in names))
    return len(names)
