"""Recall against queries per second: our exact search, and indexes of binary codes of faiss and usearch.

python benchmarks/peers.py                               everything, about ten minutes on two cores
python benchmarks/peers.py --bits 64,256 --items 20000   some code lengths, fewer codes
python benchmarks/peers.py --json > results/peers.json   the record
python benchmarks/peers.py --record results/peers.json --plot docs/images/peers.png   the figure of a record

Each index runs alone in a process of its own with all threads. Recall@10 counts a result as right if it is at most as far as
the tenth nearest code. Queries are asked one by one ("1"), and 1,000 in one call ("1,000").
"""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from proxyhash import codes
from proxyhash.utils.parallel import available_threads
from reporting import provenance

K, MANY, ALONE = 10, 1000, 100
REPEATS = 3
Packed = NDArray[np.uint8]
Search = Callable[[Packed], NDArray[Any]]
"""Returns the distances (Q, at most 10) of what it found."""


@dataclass(frozen=True)
class Point:
    """One measurement: queries per second with so many queries in a call, and the recall."""

    bits: int
    data: str
    system: str
    setting: str
    queries: int
    recall: float
    per_second: float
    build_seconds: float


def make_codes(data: str, bits: int, items: int) -> tuple[Packed, Packed]:
    """Return codes and 1,000 queries: uniform ones, or around 1,000 centers with 5 % of the bits flipped."""
    random = np.random.default_rng(bits)
    if data == "uniform":
        return tuple(random.integers(0, 256, (count, bits // 8), dtype=np.uint8) for count in (items, MANY))  # type: ignore[return-value]
    centers = random.integers(0, 256, (1000, bits // 8), dtype=np.uint8)

    def around(count: int) -> Packed:
        chosen = centers[random.integers(0, len(centers), count)]
        for first in range(0, count, 65_536):
            part = chosen[first : first + 65_536]
            part ^= np.packbits(random.random((len(part), bits), dtype=np.float32) < 0.05, axis=1)
        return chosen

    return around(items), around(MANY)


def ours(stored: Packed) -> Iterator[tuple[str, Search]]:
    from proxyhash.codes.bits import to_words
    from proxyhash.index.clusters.centroids import assign_clusters
    from proxyhash.index.local import blocks, transactions
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.utils.jit import cold_start

    cold_start.end()
    with TemporaryDirectory() as folder, LocalIndex.open_folder(Path(folder) / "i", bits=8 * stored.shape[1]) as index:
        transactions.recluster_if_grown(index.store, stored, lambda: None)
        _, centroids = transactions.active_centroids(index.store)
        with index.store.writing() as generation:
            item_ids = np.arange(len(stored), dtype=np.uint32)
            block = blocks.Block(item_ids, assign_clusters(stored, centroids), stored)
            blocks.append_codes(index.store, 1, block, generation)

        def search(queries: Packed) -> NDArray[Any]:
            words = np.ascontiguousarray(to_words(queries).T)
            hits = index.snapshots.latest().nearest(words, K)[0]
            return hits.distances.reshape(len(queries), -1)

        search(stored[:2])
        yield "exact", search


def faiss_sides(system: str) -> Callable[[Packed], Iterator[tuple[str, Search]]]:
    def build(stored: Packed) -> Iterator[tuple[str, Search]]:
        import faiss

        faiss.omp_set_num_threads(available_threads())
        bits = 8 * stored.shape[1]
        settings: list[tuple[str, Callable[[], None]]] = [("exact", lambda: None)]
        index: Any
        if system == "faiss Flat":
            index = faiss.IndexBinaryFlat(bits)
        elif system == "faiss IVF":
            coarse, lists = faiss.IndexBinaryFlat(bits), 2 ** round(np.log2(np.sqrt(len(stored))))
            index = faiss.IndexBinaryIVF(coarse, bits, lists)
            index.train(stored[: 64 * lists])
            settings = [(f"nprobe={n}", lambda n=n: setattr(index, "nprobe", n)) for n in (1, 4, 16, 64, 256)]  # type: ignore[misc]
        elif system == "faiss MultiHash":
            length = min(bits // 4, int(np.log2(len(stored))))
            index = faiss.IndexBinaryMultiHash(bits, 4, length)
            settings = [(f"nflip={n}", lambda n=n: setattr(index, "nflip", n)) for n in (0, 1, 2, 3)]  # type: ignore[misc]
        else:
            index = faiss.IndexBinaryHNSW(bits, 16)
            settings = [(f"efSearch={n}", lambda n=n: setattr(index.hnsw, "efSearch", n)) for n in (16, 64, 256, 1024)]  # type: ignore[misc]
        index.add(stored)
        for name, choose in settings:
            choose()
            yield name, lambda queries: _found(*index.search(queries, K))

    return build


def _found(distances: NDArray[Any], ids: NDArray[Any]) -> NDArray[Any]:
    """Return distances; a place without a result is beyond every distance."""
    return np.where(ids >= 0, distances, np.iinfo(np.int32).max)


def usearch_side(stored: Packed) -> Iterator[tuple[str, Search]]:
    from usearch.index import Index

    index = Index(ndim=8 * stored.shape[1], metric="hamming", dtype="b1")
    index.add(np.arange(len(stored)), stored, threads=available_threads())
    for expansion in (16, 64, 256, 1024):
        index.expansion_search = expansion  # type: ignore[misc]

        def search(queries: Packed) -> NDArray[Any]:
            found = index.search(queries, K, threads=available_threads())
            return np.asarray(found.distances).reshape(len(queries), -1)

        yield f"expansion={expansion}", search


SYSTEMS: dict[str, Callable[[Packed], Iterator[tuple[str, Search]]]] = {
    "proxyhash": ours,
    **{name: faiss_sides(name) for name in ("faiss Flat", "faiss IVF", "faiss MultiHash", "faiss HNSW")},
    "usearch HNSW": usearch_side,
}


@dataclass(frozen=True)
class Task:
    """Codes to search, queries, and the distances (Q, 1) of their tenth nearest codes."""

    bits: int
    data: str
    stored: Packed
    queries: Packed
    limits: NDArray[Any]


def make_task(data: str, bits: int, items: int) -> Task:
    """Return the task that all systems get."""
    stored, queries = make_codes(data, bits, items)
    return Task(bits, data, stored, queries, codes.top_k(queries, stored, K).distances[:, -1:])


def measure(system: str, task: Task) -> list[Point]:
    """Return all points of one system, in a process of its own."""
    points, begin, built = [], time.perf_counter(), 0.0
    for setting, search in SYSTEMS[system](task.stored):
        built = built or time.perf_counter() - begin  # the settings of an index share its construction
        search(task.queries[:2])
        for count, asked in ((1, task.queries[:ALONE]), (MANY, task.queries)):
            batches = [asked[first : first + count] for first in range(0, len(asked), count)]
            best, found = np.inf, []
            for _ in range(REPEATS):
                start = time.perf_counter()
                found = [search(batch) for batch in batches]
                best = min(best, time.perf_counter() - start)
            recall = float((np.concatenate(found) <= task.limits[: len(asked)]).sum() / (K * len(asked)))
            where = (task.bits, task.data, system, setting, count)
            points.append(Point(*where, recall, len(asked) / best, round(built, 2)))
    return points


def measure_all(lengths: list[int], items: int) -> list[Point]:
    """Return the points of all systems, and print each as it is measured."""
    progress, points = Console(stderr=True), []
    for bits in lengths:
        for data in ("uniform", "clustered"):
            task = make_task(data, bits, items)
            for system in SYSTEMS:
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    points += (new := pool.apply(measure, (system, task)))
                each = ", ".join(f"{p.setting} ({p.queries}): {p.recall:.2f} {p.per_second:,.0f}/s" for p in new)
                progress.print(f"[dim]{bits} bits, {data}, {system}: {each}[/dim]", highlight=False)
    return points


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw one panel for each code length, kind of codes and number of queries."""
    points = [Point(**point) for point in record["points"]]
    lengths = sorted({point.bits for point in points})
    columns = [(data, queries) for data in ("uniform", "clustered") for queries in (1, MANY)]
    figure = Figure(figsize=(3.1 * len(columns), 2.5 * len(lengths) + 0.8), layout="constrained")
    panels = figure.subplots(len(lengths), len(columns), squeeze=False, sharex="col")
    for row, bits in enumerate(lengths):
        for column, (data, queries) in enumerate(columns):
            mine = [p for p in points if (p.bits, p.data, p.queries) == (bits, data, queries)]
            _draw_panel(panels[row, column], mine)
            panels[row, column].set_title(f"{bits} bits, {data}, {queries:,} in a call", fontsize=9)
        panels[row, 0].set_ylabel("queries per second")
    for column, (data, _) in enumerate(columns):
        lowest = min(p.recall for p in points if p.data == data)
        panels[-1, column].set_xlim(lowest - 0.04 * (1 - lowest), 1 + 0.05 * (1 - lowest))
        panels[-1, column].set_xlabel("recall@10")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=110)


def _draw_panel(panel: Axes, points: list[Point]) -> None:
    for number, system in enumerate(SYSTEMS):
        mine = sorted((p for p in points if p.system == system), key=lambda p: p.recall)
        style = {"marker": "*", "markersize": 13, "zorder": 3} if system == "proxyhash" else {"marker": "o", "markersize": 4}
        panel.plot([p.recall for p in mine], [p.per_second for p in mine], color=f"C{number}", label=system, **style)  # type: ignore[arg-type]
    panel.set_yscale("log")
    panel.grid(alpha=0.3)


def _table(record: dict[str, Any]) -> Table:
    table = Table(title=f"{record['items']:,} codes, top {K}", title_justify="left")
    for heading in ("bits", "codes", "system", "setting", "queries in a call", "recall@10", "queries/s", "build, s"):
        table.add_column(heading, justify="left" if heading in ("codes", "system", "setting") else "right")
    for p in (Point(**point) for point in record["points"]):
        numbers = (f"{p.queries:,}", f"{p.recall:.3f}", f"{p.per_second:,.0f}", f"{p.build_seconds:.1f}")
        table.add_row(str(p.bits), p.data, p.system, p.setting, *numbers)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", default="64,128,256,512,1024", help="code lengths, with commas")
    parser.add_argument("--items", type=int, default=200_000, help="number of codes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--record", type=Path, help="take this record instead of measuring")
    parser.add_argument("--plot", type=Path, help="draw the record")
    options = parser.parse_args()
    if options.record:
        record = json.loads(options.record.read_text(encoding="utf-8"))
    else:
        points = measure_all([int(bits) for bits in options.bits.split(",")], options.items)
        record = {"title": "Search of binary codes", **provenance(), "items": options.items}
        record["points"] = [asdict(point) for point in points]
    if options.plot:
        draw(record, options.plot)
    elif options.json:
        print(json.dumps(record, indent=1))
    else:
        console = Console()
        console.width = max(console.width, 130)
        console.print(_table(record))


if __name__ == "__main__":
    main()
