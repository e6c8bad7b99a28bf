"""`proxyhash search`: what an index holds that is like an image."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxyhash.cli.index import open_index
from proxyhash.cli.parameters import Int, Json
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index import Index
    from proxyhash.index.local.items import Item
    from proxyhash.index.results import Matches


def search(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *images: Path,
    k: Annotated[Int, Parameter(name=["-k", "--k"])] = 10,
    like: tuple[str, ...] = (),
    within: Int | None = None,
    rerank: Int = 0,
    approximate: Int = 0,
    threshold: float = 0.5,
    show: Path | None = None,
    model: Path | None = None,
    json_: Json = False,
) -> None:
    """Search an index with images, or with items that are in it.

      proxyhash search photos.index query.jpg -k 20 --show found.png
      proxyhash search photos.index --like cats/7.jpg --within 4
      proxyhash search milvus://localhost:19530/photos query.jpg

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    images
        Image files to search with.
    k
        How many items to find for each.
    like
        Keys of items to search with; may be given several times.
    within
        Find all items within so many bits instead.
    rerank
        Order that many candidates by how sure the query is of each bit: settles ties.
    approximate
        Look only into so many groups, by faiss: faster on very large indexes, but items may be missed.
    threshold
        The expected precision below which there is no match, where the model was calibrated.
    show
        Draw what was found, as a .png or .jpg file.
    model
        The model of an index on a server, if it was never given on this machine; an index in a folder has its own.
    json_
        Print JSON instead of tables.
    """
    if not images and not like:
        raise InputError("Search with images, or with --like and the key of an item.")
    with open_index(index_, model) as opened:
        found = _found(opened, images, like, k, within, rerank, approximate, threshold)
        if show is not None:
            _draw(opened, images, like, found, show)
    if json_:
        print(json.dumps([matches.as_dict() for matches in found], indent=2))
        return
    for matches in found:
        _print_matches(matches)
    if show is not None:
        Console(highlight=False, soft_wrap=True).print(f"See the picture {show}.", markup=False)


def _found(
    opened: "Index", images: tuple[Path, ...], like: tuple[str, ...], k: int, within: int | None, rerank: int,
    approximate: int, threshold: float,
) -> "list[Matches]":  # fmt: skip
    from dataclasses import replace

    import numpy as np

    options = {"rerank": rerank, "approximate": approximate, "threshold": threshold}
    found: list[Matches] = []
    if images:
        paths = list(images)
        found += opened.search(paths, k, **options) if within is None else opened.within(paths, within)  # type: ignore[arg-type]
    if like:
        codes = np.concatenate([opened.code(key) for key in like])
        options["rerank"] = 0  # a stored code has no real-valued query
        more = opened.search(codes, k, **options) if within is None else opened.within(codes, within)  # type: ignore[arg-type]
        found += [replace(matches, query=key) for key, matches in zip(like, more, strict=True)]
    return found


def _draw(opened: "Index", images: tuple[Path, ...], like: tuple[str, ...], found: "list[Matches]", show: Path) -> None:
    from proxyhash.index.contact_sheet import Picture, draw_sheet

    queries = [*images, *(opened.item(key).path for key in like)]
    rows = []
    for query, matches in zip(queries, found, strict=True):
        note = "no match" if matches.matched is False else f"{len(matches):,} found"
        row = [Picture(query, matches.query, note, query=True)]
        for match in matches:
            item = _item(opened, match.key)
            labels = ", ".join(match.labels)
            row.append(Picture(item.path if item else None, match.key, f"{match.distance} bits{labels and ', ' + labels}"))
        rows.append(row)
    draw_sheet(rows, show)


def _item(opened: "Index", key: str) -> "Item | None":
    """Return an item that was found, None if it was removed meanwhile."""
    try:
        return opened.item(key)
    except InputError:
        return None


def _print_matches(matches: "Matches") -> None:
    console = Console(highlight=False)
    approximate = "" if matches.exact else " (approximate)"
    console.print(Text(f"{matches.query}{approximate}", "bold"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    table.add_column("bits", justify="right")
    scored = any(match.score is not None for match in matches)
    if scored:
        table.add_column("re-ranked", justify="right")
    calibrated = matches.matched is not None
    if calibrated:
        table.add_column("alike", justify="right")
    table.add_column("item")
    table.add_column("labels")
    for match in matches:
        cells = [str(match.distance)]
        cells += [f"{match.score:.2f}"] if scored else []
        cells += [f"{100 * (match.expected_precision or 0):.0f} %"] if calibrated else []
        table.add_row(*cells, Text(match.key), Text(", ".join(match.labels)))
    console.print(table)
    if matches.matched is False:
        console.print("No match: even the nearest item is so far that it is probably something else.")
    elif not len(matches):
        console.print("Nothing was found.")
