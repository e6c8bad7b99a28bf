"""`proxyhash index duplicates`: near duplicates in an index, or between two."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from proxyhash.cli.index.opening import open_local_index
from proxyhash.cli.output import print_line
from proxyhash.cli.parameters import Flag, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index.duplicates import DuplicateGroup, DuplicatesReport

_KEYS_PER_LINE = 8


def duplicates(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *,
    radius: Int | None = None,
    precision: float | None = None,
    refine: bool | None = None,
    refine_radius: float | None = None,
    against: Path | None = None,
    since: Path | None = None,
    keep_best: str | None = None,
    max_group: Int = 1000,
    csv: Path | None = None,
    page: Path | None = None,
    list_: Annotated[Path | None, Parameter(name="--list")] = None,
    null: Annotated[bool, Flag, Parameter(name=["--null", "-0"])] = False,
    json_: Json = False,
) -> None:
    """List near duplicates: groups of items connected by pairs whose codes, and refinements, are near.

      proxyhash index duplicates photos.index --radius 2 --page duplicates.html
      proxyhash index duplicates photos.index --radius 2 --keep-best resolution,size --list others.txt
      proxyhash index duplicates photos.index --radius 2 --since photos.duplicates.json
      proxyhash index duplicates new.index --against photos.index --radius 2

    Nothing is deleted: the command writes lists.

    Parameters
    ----------
    index_
        The folder of the index.
    radius
        The bits in which the codes of two near items may differ; 0 by default.
    precision
        Choose the radius instead: the largest distance with this expected precision, where the model was calibrated.
    refine
        Compare the refinements of items too, or not. By default they are compared if the index has them.
    refine_radius
        The largest distance of two refinements: bits of codes, or steps of int8 values.
    against
        Another index of the same model: only pairs of an item of each are near.
    since
        A file with the state of an earlier search, written again at the end. Only items added since are compared.
    keep_best
        Which item of a group to keep: resolution, size, name=PATTERN, or several with commas between them. Otherwise, and
        among equals, the one that was added first.
    max_group
        Items of a group that are listed. Items of a larger group are not written by --list.
    csv
        Write a table with a row for each item.
    page
        Write a page with thumbnails, as one .html file.
    list_
        Write the paths of the items that need not be kept, or their keys if they have no image, one on each line.
    null
        End each name of --list with a null character, as xargs -0 reads them.
    json_
        Print JSON.
    """
    from proxyhash.index.duplicates import find_duplicates, radius_of_precision

    for path in (since, csv, page, list_):
        if path is not None:
            check_writable(path)
    if radius is not None and precision is not None:
        raise InputError("Give --radius or --precision, not both.")
    with ExitStack() as stack:
        opened = stack.enter_context(open_local_index(index_))
        other = None if against is None else stack.enter_context(open_local_index(against))
        report = find_duplicates(
            opened,
            radius or 0 if precision is None else radius_of_precision(opened, precision),
            refine=refine,
            refine_radius=refine_radius,
            against=other,
            since=since,
            keep_best=keep_best,
            max_group=max_group,
            with_files=csv is not None or page is not None,
            progress=stack.enter_context(progress_bars()),
        )
    names = _write_files(report, index_, csv, page, list_, null=null)
    if json_:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        _print(report, names)


def _write_files(
    report: "DuplicatesReport", title: str, csv: Path | None, page: Path | None, list_: Path | None, *, null: bool
) -> int | None:
    """Write the files that were asked for; return how many items are in the list."""
    if csv is not None:
        from proxyhash.index.duplicates.files import write_csv

        write_csv(report, csv)
    if page is not None:
        from proxyhash.index.duplicates.page import write_page

        write_page(report, page, title)
    if list_ is None:
        return None
    from proxyhash.index.duplicates.files import write_list

    return write_list(report, list_, null=null)


def _print(report: "DuplicatesReport", names: int | None) -> None:
    for group in report.groups:
        print_line(_line(group))
    print_line(f"{len(report):,} groups, {report.num_duplicates:,} of {report.num_items:,} items.")
    if report.num_left_out:
        print_line(f"{report.num_left_out:,} items have no refinement and were not compared.")
    capped = sum(group.is_capped for group in report.groups)
    if capped:
        print_line(f"{capped:,} groups have more items than --max-group; none of their items is in a list.")
    if names is not None:
        print_line(f"{names:,} items need not be kept.")


def _line(group: "DuplicateGroup") -> str:
    keys = [item.key for item in group.items[:_KEYS_PER_LINE]]
    return f"{group.size:,}: {', '.join(keys)}{', ...' if group.size > len(keys) else ''}"
