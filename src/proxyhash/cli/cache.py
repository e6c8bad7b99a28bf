"""`proxyhash cache`: what is stored in the user's cache, and its deletion."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import App
from rich.table import Table

from proxyhash.cli.output import SafeConsole, cell, print_result
from proxyhash.cli.parameters import Flag, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.text import format_bytes
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.models.cache_clearing import CacheClearing
    from proxyhash.models.cache_entries import CacheEntry

cache = App(name="cache", help="List and delete what is stored in the cache: PROXYHASH_CACHE, or the user's cache folder.")

_HEADINGS = ("kind", "entry", "contents", "size", "last used")


@cache.default
@cache.command(name="list")
def list_(*, json_: Json = False) -> None:
    """List the entries of the cache, and their sizes.

    Features and activations of networks are listed with the data set, the network and the size of the images in pixels.
    An entry that was interrupted is continued by the command that began it.

    Parameters
    ----------
    json_
        Print JSON instead of a table.
    """
    from proxyhash.models.cache_entries import list_cache
    from proxyhash.utils.paths import cache_root

    with progress_bars() as progress:
        entries = list_cache(progress=progress)
    total = sum(entry.num_bytes for entry in entries)
    if json_:
        listed = [entry.as_dict() for entry in entries]
        print(json.dumps({"folder": str(cache_root()), "bytes": total, "entries": listed}, indent=2))
        return
    console = SafeConsole(highlight=False)
    if entries:
        console.print(_table(entries))
        console.print()
    console.print(cell(f"{_count(len(entries))}, {format_bytes(total)}, in {cache_root()}."), soft_wrap=True)


@cache.command
def clear(*names: str, older_than: Int | None = None, dry_run: Annotated[bool, Flag] = False, json_: Json = False) -> None:
    """Delete entries of the cache. What another process fills is skipped, and so are symbolic links and files of others.

    Without names, features, activations and compiled code are deleted, which are computed again when they are needed.
    Downloaded weights and data sets, and the models of indexes on a Milvus server, are deleted only by name:

      proxyhash cache clear features --older-than 30
      proxyhash cache clear weights data --dry-run

    Parameters
    ----------
    names
        Kinds (features, activations, compiled, weights, data, models), or entries as `proxyhash cache` lists them.
    older_than
        Delete only what was last used more than so many days ago.
    dry_run
        Delete nothing, and print what would be deleted.
    json_
        Print JSON instead of sentences.
    """
    from proxyhash.models.cache_clearing import clear_cache

    if older_than is not None:
        check_int("--older-than", older_than, minimum=1)
    with progress_bars() as progress:
        done = clear_cache(names, older_than=older_than, dry_run=dry_run, progress=progress)
    result = {
        "dry_run": dry_run,
        "bytes": done.num_bytes,
        "deleted": [entry.as_dict() for entry in done.deleted],
        "skipped": [{**entry.as_dict(), "reason": reason} for entry, reason in done.skipped],
    }
    print_result(result, *_sentences(done, dry_run=dry_run), as_json=json_)


def _sentences(done: "CacheClearing", *, dry_run: bool) -> list[str]:
    verb = "Would delete" if dry_run else "Deleted"
    deleted = _merge_compiled(done.deleted)
    lines = [f"{verb} {entry.kind}/{entry.name}, {format_bytes(entry.num_bytes)}." for entry in deleted]
    lines += [f"Skipped {entry.kind}/{entry.name}: {reason}." for entry, reason in done.skipped]
    freed = "would be freed" if dry_run else "are freed"
    total = f"{_count(len(done.deleted))}; {format_bytes(done.num_bytes)} {freed}."
    return [*lines, total if done.deleted else "Nothing is deleted."]


def _table(entries: "Sequence[CacheEntry]") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _HEADINGS:
        is_whole = heading != "contents"
        table.add_column(heading, justify="right" if heading == "size" else "left", overflow="fold", no_wrap=is_whole)
    for entry in _merge_compiled(entries):
        table.add_row(*map(cell, _row(entry)))
    return table


def _merge_compiled(entries: "Sequence[CacheEntry]") -> "list[CacheEntry]":
    """Return one entry in place of all complete ones of compiled code, whose names say nothing to people."""
    compiled = [entry for entry in entries if entry.kind == "compiled" and entry.state == "complete"]
    if len(compiled) < 2:
        return list(entries)
    others = [entry for entry in entries if entry not in compiled]
    size, last_used = sum(entry.num_bytes for entry in compiled), max(entry.last_used for entry in compiled)
    return [*others, replace(compiled[0], name=f"{len(compiled)} folders", num_bytes=size, last_used=last_used)]


def _row(entry: "CacheEntry") -> tuple[str, ...]:
    last_used = f"{datetime.fromtimestamp(entry.last_used):%Y-%m-%d}"
    return entry.kind, entry.short_name, _contents(entry), format_bytes(entry.num_bytes), last_used


def _contents(entry: "CacheEntry") -> str:
    """Return what is known of an entry, and its state unless it is complete."""
    source, parts = entry.source, []
    if source is not None:
        stages = "" if source.upper is None else f", below {source.upper} upper stage{'s' * (source.upper > 1)}"
        parts.append(f"{source.dataset}, {source.network} at {source.image_size} pixels{stages}")
    if entry.shape is not None:
        parts.append(" x ".join(f"{length:,}" for length in entry.shape))
    if entry.state != "complete":
        parts.append(entry.state if not entry.rows_done else f"{entry.state}, {entry.rows_done:,} done")
    return "; ".join(parts)


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number:,} entries"
