"""`proxyhash search`: nearest items of images, of vectors, or of items of the index."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from rich.table import Table

from proxyhash.cli.index.opening import open_index
from proxyhash.cli.output import SafeConsole, cell, show_log
from proxyhash.cli.parameters import Device, Int, Json
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.index import Index
    from proxyhash.index.queries import QueriesLike
    from proxyhash.index.results import Matches

    Find = Callable[..., list[Matches]]


def search(
    index_: Annotated[str, Parameter(name="index")],
    /,
    *images: Path,
    k: Annotated[Int, Parameter(name=["-k", "--k"])] = 10,
    key: tuple[str, ...] = (),
    vectors: Path | None = None,
    vector_column: str | None = None,
    radius: Int | None = None,
    label: tuple[str, ...] = (),
    where: str | None = None,
    rerank: Int | None = None,
    refine: bool | None = None,
    oversample: Int | None = None,
    nprobe: Int | None = None,
    plan: Literal["scan", "clusters", "mih"] | None = None,
    threshold: float = 0.5,
    show: Path | None = None,
    model: Path | None = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Search an index with images, with vectors, or with items that are in it.

      proxyhash search photos.index query.jpg -k 20 --show found.png
      proxyhash search photos.index --key cats/7.jpg --radius 4
      proxyhash search photos.index query.jpg --label cats --label dogs
      proxyhash search photos.index query.jpg --where "label == 'cats' and year > 2020"
      proxyhash search milvus://localhost:19530/photos query.jpg
      proxyhash search texts.index --vectors queries.npy

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    images
        Image files to search with.
    k
        How many items to find for each.
    key
        Keys of items to search with; may be given several times.
    vectors
        A file of vectors to search with, for an index whose model takes vectors.
    vector_column
        The column of vectors in a table.
    radius
        Find all items within so many bits instead.
    label
        Find only items with this label; may be given several times, for items with at least one of them.
    where
        Find only items for which this is true: labels and columns compared by == != < <= > >= in, and, or, not.
    rerank
        Sort that many candidates by the query's real-valued embedding, which settles ties.
    refine
        Sort items at the same distance by their refinement, or not. By default they are sorted if the index has one.
    oversample
        Find that many times k candidates and sort them by their refinement alone; for vectors it finds more of the true
        neighbors.
    nprobe
        Search only that many clusters, by faiss: faster on very large indexes, but items may be missed.
    plan
        Search exactly by a scan, by clusters or by multi-index hashing (mih), instead of the plan that should be fastest.
    threshold
        The expected precision below which there is no match, where the model was calibrated.
    show
        Draw the matches, as a .png or .jpg file.
    model
        The model of an index on a server, if it was never given on this machine; an index in a folder has its own.
    device
        cpu, cuda, cuda:1 or mps; auto is the CPU, which encodes a few images before a GPU has started.
    json_
        Print JSON instead of tables.
    """
    if not images and not key and vectors is None:
        raise InputError("Search with images, with --vectors and a file, or with --key and the key of an item.")
    with open_index(index_, model, device="cpu" if device == "auto" else device) as index, show_log("proxyhash.index.mih"):
        if vectors is not None and index.width is None:
            raise InputError(f"{index_} has no model that takes vectors; search with images, or with --key.")
        if show is not None and index.width is not None:
            raise InputError(f"{index_} is an index of vectors: there are no images to draw; leave --show out.")
        filters: dict[str, Any] = {"labels": label or None, "where": where, "plan": plan, "refine": refine}
        find = _finder(index, k, radius, filters, nprobe, threshold, oversample)
        found = find(list(images), rerank) if images else []
        if vectors is not None:
            from proxyhash.cli.index.vectors import search_vectors

            found += search_vectors(vectors, vector_column, find, rerank)
        found += _find_keys(index, key, find)
        query_paths = [*images, *(index.item(name).path for name in key)] if show is not None else []
    if show is not None:
        from proxyhash.index.contact_sheet import draw_matches

        draw_matches(query_paths, found, show)
    if json_:
        print(json.dumps([matches.as_dict() for matches in found], indent=2))
        return
    for matches in found:
        _print_matches(matches, with_plan=plan is not None)
    if show is not None:
        SafeConsole(highlight=False, soft_wrap=True).print(cell(f"See the picture {show}."))


def _finder(
    index: "Index",
    k: int,
    radius: int | None,
    filters: dict[str, Any],
    nprobe: int | None,
    threshold: float,
    oversample: int | None,
) -> "Find":
    """Return a function that searches by the options of the command."""

    def find(queries: "QueriesLike", rerank: int | None = None) -> "list[Matches]":
        if radius is not None:
            return index.range_search(queries, radius, threshold=threshold, **filters)
        options: dict[str, Any] = {"rerank": rerank, "oversample": oversample, "nprobe": nprobe, "threshold": threshold}
        return index.search(queries, k, **filters, **options)

    return find


def _find_keys(index: "Index", keys: tuple[str, ...], find: "Find") -> "list[Matches]":
    """Search with items; these cannot be re-ranked, as a stored code has no real-valued embedding."""
    return find(index.stored_queries(keys)) if keys else []


def _print_matches(matches: "Matches", *, with_plan: bool) -> None:
    console = SafeConsole(highlight=False)
    approximate = "" if matches.exact else " (approximate)"
    console.print(cell(f"{matches.query}{approximate}", "bold"), soft_wrap=True)
    if with_plan and matches.compared is not None:
        console.print(f"by {matches.plan}, {matches.compared:,} codes compared", style="dim")
    table = Table(box=None, pad_edge=False)
    table.add_column("bits", justify="right")
    scored = any(match.score is not None for match in matches)
    if scored:
        table.add_column("re-ranked", justify="right")
    calibrated = matches.matched is not None
    if calibrated:
        table.add_column("same label", justify="right")
    table.add_column("item")
    table.add_column("labels")
    for match in matches:
        cells = [str(match.distance)]
        cells += [f"{match.score:.2f}"] if scored else []
        cells += [f"{100 * (match.expected_precision or 0):.0f} %"] if calibrated else []
        table.add_row(*cells, cell(match.key), cell(", ".join(match.labels)))
    console.print(table)
    if matches.matched is False:
        console.print("No match: even the nearest item is so far that it is probably something else.")
    elif not len(matches):
        console.print("Nothing was found.")
