"""`proxyhash index backup`, `restore` and `salvage`: copies of an index."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from proxyhash.cli.index.opening import open_local_index
from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Flag, Json
from proxyhash.cli.progress import progress_bars

if TYPE_CHECKING:
    from proxyhash.index.salvage import SalvageReport

_LOST_ITEMS_SHOWN = 20


def backup(index_: Annotated[str, Parameter(name="index")], destination: Path, /, *, json_: Json = False) -> None:
    """Copy an index to another folder, consistently while others write; later backups copy only what changed.

      proxyhash index backup photos.index /backup/photos.index

    The backup is an index itself: it can be verified and searched. Do not write to it.

    Parameters
    ----------
    index_
        The folder of the index.
    destination
        The folder of the backup: a new one, or an earlier backup of the same index.
    json_
        Print JSON.
    """
    from proxyhash.index.backup import backup as backup_index

    with open_local_index(index_) as opened, progress_bars() as progress:
        done = backup_index(opened, destination, progress)
    sentence = (
        f"{done.items_copied:,} items and {done.blocks_copied:,} blocks of codes copied, "
        f"{done.items_removed:,} items removed. "
        f"{destination} holds {done.items:,} items, {done.bytes_on_disk / 1e6:,.1f} MB."
    )
    print_result(done.as_dict(), sentence, as_json=json_)


def restore(
    backup_: Annotated[Path, Parameter(name="backup")],
    destination: Path,
    /,
    *,
    replace: Annotated[bool, Flag] = False,
    json_: Json = False,
) -> None:
    """Verify a backup completely, and copy it to a new index.

      proxyhash index restore /backup/photos.index photos.index

    Parameters
    ----------
    backup_
        The folder of the backup.
    destination
        The folder of the new index.
    replace
        Replace an index in that folder in one step. A service that has it open goes on with the new one.
    json_
        Print JSON.
    """
    from proxyhash.index.backup import restore as restore_index

    with progress_bars() as progress:
        count = restore_index(backup_, destination, replace=replace, progress=progress)
    print_result({"items": count}, f"{destination} holds the {count:,} items of {backup_}.", as_json=json_)


def salvage(index_: Annotated[str, Parameter(name="index")], new: Path, /, *, json_: Json = False) -> None:
    """Extract every intact item of a damaged index to a new one; the exit code is 1 if something is lost.

      proxyhash index salvage photos.index saved.index

    The damaged index is not changed.

    Parameters
    ----------
    index_
        The folder of the damaged index.
    new
        The folder of the new index.
    json_
        Print JSON, with all lost items.
    """
    from proxyhash.index.salvage import salvage as salvage_index

    with progress_bars() as progress:
        report = salvage_index(Path(index_), new, progress)
    print_result(report.as_dict(), *_salvage_sentences(report, new), as_json=json_)
    if not report.complete:
        sys.exit(1)


def _salvage_sentences(report: "SalvageReport", new: Path) -> list[str]:
    """Return what was saved and what is lost."""
    sentences = [f"{new} holds {report.saved:,} items that were intact."]
    if report.lost_commits:
        sentences.append(f"{report.lost_commits:,} acknowledged commits are lost.")
    if report.unknown:
        sentences.append(f"{report.unknown:,} items are lost without a trace.")
    if report.lost:
        sentences.append(f"{len(report.lost):,} items are lost:")
    for item in report.lost[:_LOST_ITEMS_SHOWN]:
        sentences.append(f"  {item.item_id}  {'?' if item.key is None else item.key}: {item.reason}")
    if len(report.lost) > _LOST_ITEMS_SHOWN:
        sentences.append("  ... (--json lists all)")
    return [*sentences, *report.notes]
