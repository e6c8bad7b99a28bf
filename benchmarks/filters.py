"""Benchmark of filtered searches of a local index of ten million codes: batches of 100 queries, against all items.

python benchmarks/filters.py                       everything, a few minutes and 2 GB of disk
python benchmarks/filters.py --only uniform        some of: uniform, thousand
Searches without a filter and with one are measured in five turns, eight of each in a turn, and the best counts. Every filter
is another one, so that no mask or compact segment of an earlier search is used: its evaluation counts.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, to_words
from proxyhash.columns import Column
from proxyhash.index.hits import Hits
from proxyhash.index.local.columns import append_columns
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.search_params import make_filter
from reporting import Row, options_of, run, timed
from search import ITEMS, filled, thousand_clusters, uniform

QUERIES, K, TURNS, REPEATS = 100, 10, 5, 8
VALUES = 100  # different texts and numbers, each of one item in a hundred


def add_columns(index: LocalIndex, values: NDArray[np.int64]) -> None:
    """Store a number and a text for each code: the number (N,), and the same as text."""
    known, texts = np.ones(len(values), np.bool_), np.array([f"place {number}" for number in range(VALUES)], object)
    with index.store.writing():
        for first in range(0, len(values), 1 << 20):
            part = slice(first, first + (1 << 20))
            item_ids = np.arange(first, first + len(values[part]), dtype=np.uint32)
            numbers, names = Column("number", values[part], known[part]), Column("text", texts[values[part]], known[part])
            append_columns(index.store, item_ids, {"number": numbers, "place": names})


def nearest(index: LocalIndex, queries: Packed, where: str | None = None) -> Hits:
    """Search the codes in memory that a filter keeps, without reading items."""
    snapshot, expression = index.snapshots.latest(), make_filter(None, where)
    chosen = snapshot if expression is None else index.filters.get(snapshot, expression, queries=len(queries))
    assert chosen is not None
    return chosen.nearest(np.ascontiguousarray(to_words(queries).T), K, with_codes=True)[0]


def least_seconds(index: LocalIndex, queries: Packed, filters: Sequence[str | None]) -> float:
    """Return the least seconds of a search, one with each filter."""
    return min(timed(nearest, index, queries, where)[1] for where in filters)


def is_exact(index: LocalIndex, queries: Packed, where: str, kept: NDArray[np.bool_]) -> bool:
    """Compare a filtered search with one for many items, of which the others are dropped."""
    found, words = nearest(index, queries, where), np.ascontiguousarray(to_words(queries).T)
    everything, _ = index.snapshots.latest().nearest(words, 4000)
    everything = everything.take(np.flatnonzero(kept[everything.item_ids]))
    return all(
        np.array_equal(
            found.ranks[found.offsets[query] : found.offsets[query + 1]], everything.ranks[everything.offsets[query] :][:K]
        )
        for query in range(len(queries))
    )


def filter_rows(name: str, stored: Packed, queries: Packed) -> Iterator[Row]:
    """Measure filters that keep one item in a hundred, or leave out one in a hundred."""
    values = np.random.default_rng(5).integers(0, VALUES, len(stored))
    with TemporaryDirectory() as folder, filled(Path(folder) / "i", stored, None) as index:
        add_columns(index, values)
        _, seconds = timed(nearest, index, queries, "number < 0 and place == 'nowhere'")
        yield Row(f"{name}: seconds of the first filter, which reads two columns", seconds, "", True, seconds)
        for share, limit, filters in (
            (0.01, 0.3, ("place == 'place {}'", "number == {}")),
            (0.99, 1.4, ("place != 'place {}'", "number != {}")),
        ):
            for where in filters:
                nearest(index, queries), nearest(index, queries, where.format(50))  # compiles, and settles on a plan
                turns = [
                    (
                        least_seconds(index, queries, [None] * REPEATS),
                        least_seconds(index, queries, [where.format(REPEATS * turn + i) for i in range(REPEATS)]),
                    )
                    for turn in range(TURNS)
                ]
                everything, filtered = np.min(turns, axis=0).tolist()
                kept = values == 60 if share < 0.5 else values != 60
                equal = is_exact(index, queries[:10], where.format(60), kept)
                ratio = filtered / everything
                times = f"{1000 * filtered:.1f} ms for {QUERIES} queries, without a filter {1000 * everything:.1f}"
                yield Row(
                    f"{name}: cost of {where.format('X')}, which keeps {share:.0%}",
                    ratio,
                    f"<= {limit:g}",
                    ratio <= limit and equal,
                    filtered,
                    note=f"{times}; exact: {equal}",
                )


def main() -> None:
    options = options_of(__doc__, ("uniform", "thousand"))
    sections = {
        "uniform": lambda: filter_rows("uniform codes", uniform(ITEMS, 1), uniform(QUERIES, 2)),
        "thousand": lambda: filter_rows("1,000 clusters", thousand_clusters(ITEMS, 1), thousand_clusters(QUERIES, 3)),
    }
    run("Filters", sections, options)


if __name__ == "__main__":
    main()
