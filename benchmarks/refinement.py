"""Benchmark of refinement inside ties: the ten nearest of ten million codes, of which about 10,000 tie with a query.

python benchmarks/refinement.py                  everything, some minutes and 3 GB of memory
python benchmarks/refinement.py --only batch     some of: single, batch
Codes are those of 500 classes with a few flipped bits, as trained ones are. Both searches run in turns, because the speed of
a machine varies; a ratio is that of the best times.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.index.clusters.clustered import ClusteredSegment, build_clustered_segment
from proxyhash.index.refinement.distances import RefinedRows, refined_rows
from proxyhash.utils.jit import cold_start
from reporting import Row, options_of, run, timed

ITEMS, CLASSES = 10_000_000, 500
FLIPPED = 0.01  # share of the bits that differ from those of the class
QUERIES, TURNS = 200, 7
KINDS: dict[str, tuple[int, Any]] = {"code": (16, np.uint8), "code256": (32, np.uint8), "int8": (64, np.int8)}


@cache
def data() -> tuple[ClusteredSegment, Words]:
    """Return all codes in their clusters, and queries (Q, 1) that are codes of the classes."""
    random = np.random.default_rng(0)
    centers = random.integers(0, 2**63, (CLASSES, 1), dtype=np.uint64)
    own = random.integers(0, CLASSES, ITEMS).astype(np.uint16)
    words = centers[own, 0]
    for bit in range(64):
        words ^= (random.random(ITEMS, dtype=np.float32) < FLIPPED).astype(np.uint64) << np.uint64(bit)
    sizes, item_ids = np.bincount(own, minlength=CLASSES), np.arange(ITEMS, dtype=np.uint32)
    segment = build_clustered_segment(centers, sizes, lambda sink: sink(words[None], item_ids, own), ITEMS)
    return segment, np.ascontiguousarray(centers[random.choice(CLASSES, QUERIES, replace=False)])


def rows_of(kind: str) -> RefinedRows:
    """Return random rows of all slots and of the queries; the time does not depend on their values."""
    width, dtype = KINDS[kind]
    segment, _ = data()
    random = np.random.default_rng(1)
    rows, queries = (random.integers(0, 255, (count, width), np.uint8).view(dtype) for count in (segment.num_slots, QUERIES))
    return refined_rows(rows, segment.slot_ids() >= 0, queries)


def _seconds(rows: RefinedRows | None, size: int) -> float:
    """Return the seconds of a search for all queries, so many at a time, with one thread."""
    segment, queries = data()
    total = 0.0
    for first in range(0, QUERIES, size):
        part = np.arange(first, first + size)
        mine = None if rows is None else rows.take(part)
        total += timed(segment.nearest, queries[part], 10, 1, rows=mine)[1]
    return total


def measure(size: int) -> Iterator[Row]:
    """Yield the time of a refined search in relation to one that is not, for each kind."""
    segment, queries = data()
    ties = np.diff(segment.range_search(queries, 0).offsets)
    for kind in KINDS:
        rows = rows_of(kind)
        times = np.array([(_seconds(None, size), _seconds(rows, size)) for _ in range(TURNS)])
        plain, refined = times.min(0)
        note = (
            f"{1e3 * plain / QUERIES:.3f} to {1e3 * refined / QUERIES:.3f} ms a query, {ties.min():,} to {ties.max():,} ties"
        )
        ratio = float(refined / plain)
        yield Row(f"{kind}, {size} queries at a time", ratio, "at most 1.2", ratio <= 1.2, times.sum(), note=note)


def main() -> None:
    cold_start.end()
    sections = {"single": lambda: measure(1), "batch": lambda: measure(QUERIES)}
    run("Refinement of ties, time over that without", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
