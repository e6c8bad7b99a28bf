"""Benchmark of refinement inside ties: the ten nearest of ten million codes, of which about 10,000 tie with a query.

python benchmarks/refinement.py                  everything, some minutes and 4 GB of memory
python benchmarks/refinement.py --only batch     some of: single, batch
Codes are those of 500 classes with a few flipped bits, as trained ones are. Both searches run in turns, because the speed of
a machine varies; a ratio is that of the best times of each call.

Rows of int8 are modeled on the PCA of EfficientNet-Lite0 features of CIFAR-100 (3,000 images of 50 classes). There the
variance of value i falls as i^-0.77, and 0.3 (value 1) to 0.9 (value 64) of it is within the classes. Queries are drawn as
items are, and the step is that of `fitting.py`. The first 16 of 64 values of such rows drop a third of the ties at
most, so that rows are always compared completely. Uniformly random values show whether the time depends on them. Rows of
codes are random bits.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.llvm_ops import BLOCK
from proxyhash.index.clusters.clustered import ClusteredSegment, build_clustered_segment
from proxyhash.index.item_ids import Int64s
from proxyhash.index.refinement.distances import RefinedRows, refined_rows
from proxyhash.index.refinement.fitting import CLIPPED_PERCENTILE
from proxyhash.index.refinement.refiner import MAX_VALUE, Rows
from proxyhash.utils.jit import cold_start
from reporting import Row, options_of, run, timed

ITEMS, CLASSES = 10_000_000, 500
FLIPPED = 0.01  # share of the bits that differ from those of the class
QUERIES, TURNS = 200, 15
VARIANCE_EXPONENT = -0.77  # of the variance of value i
WITHIN_FIRST, WITHIN_PER_OCTAVE, WITHIN_MOST = 0.3, 0.1, 0.98  # share of the variance of value i within classes
TARGET = 1.2


class Data(NamedTuple):
    """All codes in their clusters, one of each class, and queries (Q, 1) that are codes of `chosen` classes (Q,)."""

    segment: ClusteredSegment
    queries: Words
    chosen: Int64s


@cache
def data() -> Data:
    """Return the codes and queries."""
    random = np.random.default_rng(0)
    centers = random.integers(0, 2**63, (CLASSES, 1), dtype=np.uint64)
    own = random.integers(0, CLASSES, ITEMS).astype(np.uint16)
    words = centers[own, 0]
    for bit in range(64):
        words ^= (random.random(ITEMS, dtype=np.float32) < FLIPPED).astype(np.uint64) << np.uint64(bit)
    sizes, item_ids = np.bincount(own, minlength=CLASSES), np.arange(ITEMS, dtype=np.uint32)
    segment = build_clustered_segment(centers, sizes, lambda sink: sink(words[None], item_ids, own), ITEMS)
    chosen = random.choice(CLASSES, QUERIES, replace=False)
    return Data(segment, np.ascontiguousarray(centers[chosen]), chosen)


def random_rows(width: int, dtype: Any) -> tuple[Rows, Rows]:
    """Return uniformly random rows of all slots and of the queries."""
    random = np.random.default_rng(1)
    rows: Rows = random.integers(0, 256, (data().segment.num_slots, width), np.uint8).view(dtype)
    queries: Rows = random.integers(0, 256, (QUERIES, width), np.uint8).view(dtype)
    return rows, queries


def image_rows(width: int) -> tuple[Rows, Rows]:
    """Return int8 rows of all slots and of the queries, distributed as those of image features of several classes."""
    segment, _, chosen = data()
    random = np.random.default_rng(1)
    numbers = np.arange(1.0, width + 1)
    variance = numbers**VARIANCE_EXPONENT
    within = np.minimum(WITHIN_FIRST + WITHIN_PER_OCTAVE * np.log2(numbers), WITHIN_MOST) * variance
    means = random.normal(size=(CLASSES, width)) * np.sqrt(variance - within)

    def draw(classes: Int64s) -> NDArray[np.float32]:
        values: NDArray[np.float32] = random.standard_normal((len(classes), width), np.float32)
        values *= np.sqrt(within)
        values += means[classes]
        return values

    sample = draw(random.integers(0, CLASSES, 20_000))
    step = float(np.percentile(np.abs(sample), CLIPPED_PERCENTILE)) / MAX_VALUE

    def quantize(values: NDArray[np.float32]) -> NDArray[np.int8]:
        quantized: NDArray[np.int8] = np.clip(np.rint(values / step), -MAX_VALUE, MAX_VALUE).astype(np.int8)
        return quantized

    rows = np.empty((segment.num_slots, width), np.int8)
    for label, (first, end) in enumerate(zip(segment.clusters.starts, segment.clusters.starts[1:], strict=False)):
        rows[first * BLOCK : end * BLOCK] = quantize(draw(np.full((end - first) * BLOCK, label)))
    return rows, quantize(draw(chosen))


KINDS: dict[str, tuple[Callable[[], tuple[Rows, Rows]], bool]] = {
    "code": (lambda: random_rows(16, np.uint8), True),
    "code256": (lambda: random_rows(32, np.uint8), True),
    "int8": (lambda: image_rows(64), True),
    "int8, uniform values": (lambda: random_rows(64, np.int8), False),
    "int8x256": (lambda: image_rows(256), False),
}
"""Rows of slots and of queries, and whether there is a target"""


def rows_of(kind: str) -> RefinedRows:
    """Return the rows of all slots and of the queries."""
    rows, queries = KINDS[kind][0]()
    return refined_rows(rows, data().segment.slot_ids() >= 0, queries)


def _seconds(rows: RefinedRows | None, size: int) -> list[float]:
    """Return the seconds of each search for all queries, so many at a time, with one thread."""
    segment, queries, _ = data()
    seconds = []
    for first in range(0, QUERIES, size):
        part = np.arange(first, first + size)
        mine = None if rows is None else rows.take(part)
        seconds.append(timed(segment.nearest, queries[part], 10, 1, rows=mine)[1])
    return seconds


def measure(size: int) -> Iterator[Row]:
    """Yield the time of a refined search in relation to one that is not, for each kind."""
    segment, queries, _ = data()
    ties = np.diff(segment.range_search(queries, 0).offsets)
    for kind, (_, has_target) in KINDS.items():
        rows = rows_of(kind)
        times = np.array([(_seconds(None, size), _seconds(rows, size)) for _ in range(TURNS)])
        plain, refined = times.min(0).sum(1)
        note = (
            f"{1e3 * plain / QUERIES:.3f} to {1e3 * refined / QUERIES:.3f} ms a query, {ties.min():,} to {ties.max():,} ties"
        )
        ratio = float(refined / plain)
        target = f"at most {TARGET}" if has_target else ""
        reached = ratio <= TARGET or not has_target
        yield Row(f"{kind}, {size} queries at a time", ratio, target, reached, float(times.sum()), note=note)


def main() -> None:
    cold_start.end()
    sections = {"single": lambda: measure(1), "batch": lambda: measure(QUERIES)}
    run("Refinement of ties, time over that without", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
