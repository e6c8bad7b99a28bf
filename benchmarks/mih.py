"""Benchmark of multi-index hashing against our scan, ten million codes of 64 bits, and the constants of its cost model.

python benchmarks/mih.py                         everything, a few minutes and 2 GB of memory
python benchmarks/mih.py --only range,chosen     some of: range, nearest, chosen, build, constants
The plans are compared in turns, because the speed of a machine varies. A ratio is that of the medians.
"""

import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, to_words
from proxyhash.index.clusters.clustered import build_clustered_segment
from proxyhash.index.clusters.segment import FlatSegment, build_flat_segment
from proxyhash.index.hits import Hits
from proxyhash.index.mih import costs
from proxyhash.index.mih.multi_index import MultiIndex, build_multi_index
from proxyhash.index.mih.planner import Planner
from proxyhash.index.mih.request import Request
from proxyhash.index.mih.substrings import choose_substrings
from proxyhash.index.plans import Plan
from proxyhash.utils.jit import cold_start
from proxyhash.utils.parallel import available_threads
from reporting import Row, options_of, run, timed

ITEMS = 10_000_000
QUERIES = 1000
TURNS = 5
PLANTED = 10  # neighbors of each query within 8 bits


def flipped(codes: Packed, bits: int, seed: int) -> Packed:
    """Return codes with so many of their bits flipped."""
    order = np.argsort(np.random.default_rng(seed).random((len(codes), 64)), axis=1)
    return codes ^ np.packbits(order < bits, axis=1)


@cache
def stored() -> Packed:
    """Return uniform codes; the first ones are 10 neighbors of each of 1,000 queries, at 1 to 8 bits."""
    codes = np.random.default_rng(1).integers(0, 256, (ITEMS, 8), dtype=np.uint8)
    for turn in range(PLANTED):
        codes[turn * QUERIES : (turn + 1) * QUERIES] = flipped(queries(), min(turn + 1, 8), turn)
    return codes


@cache
def queries() -> Packed:
    return np.random.default_rng(2).integers(0, 256, (QUERIES, 8), dtype=np.uint8)


@cache
def segment() -> FlatSegment:
    return as_segment(stored())


def as_segment(codes: Packed) -> FlatSegment:
    """Return packed codes (N, 8) as a flat segment with item ids 0 to N - 1."""
    words, item_ids, clusters = to_words(codes), np.arange(len(codes), dtype=np.uint32), np.zeros(len(codes), np.uint16)
    return build_flat_segment(64, len(codes), lambda sink: sink(words, item_ids, clusters))


@cache
def planner() -> Planner:
    """Return a planner that has built its tables."""
    made = Planner(64)
    made.search(segment(), request(queries()[:1], radius=0), "mih")
    return made


def request(codes: Packed, k: int | None = None, radius: int = 0) -> Request:
    return Request(np.ascontiguousarray(to_words(codes).T), available_threads(), k, radius)


def medians(one: Callable[[], Hits], other: Callable[[], Hits]) -> tuple[float, float, bool]:
    """Return the seconds of two searches, in turns, and whether their hits are equal."""
    first, second = one(), other()  # compiles
    equal = np.array_equal(first.ranks, second.ranks) and np.array_equal(first.offsets, second.offsets)
    turns = [(timed(one)[1], timed(other)[1]) for _ in range(TURNS)]
    mine, base = np.median(turns, axis=0).tolist()
    return mine, base, equal


def compare(name: str, asked: Request, plan: Plan | None, target: float, *, max_share: float = 1.0) -> Iterator[Row]:
    """Compare a plan with the scan: in one call, and in calls of one query."""
    alone = [asked.take(slice(row, row + 1)) for row in range(0, len(asked), len(asked) // 20)]
    cases = {f"{len(asked):,} queries in one call": [asked], "calls of one query": alone}
    for case, requests in cases.items():
        mine, base, equal = medians(lambda r=requests: search(r, plan), lambda r=requests: search(r, "scan"))  # type: ignore[misc]
        stats = search(requests, plan).stats
        assert stats is not None
        share, ratio = float(stats.compared.mean()) / ITEMS, base / mine
        count = sum(map(len, requests))
        note = f"{1e6 * mine / count:,.1f} us a query, scan {1e6 * base / count:,.1f}; {100 * share:.5f} % of the codes"
        note += f" compared; plans: {', '.join(sorted(set(stats.plans)))}; equal answers: {equal}"
        reached = equal and ratio >= target and share <= max_share
        yield Row(f"{name}, {case}: times our scan", ratio, f">= {target:.2g}", reached, mine, note=note)


def search(requests: list[Request], plan: Plan | None) -> Hits:
    """Return the hits of the last request."""
    for asked in requests:
        hits = planner().search(segment(), asked, plan)
    return hits


def range_rows() -> Iterator[Row]:
    yield from compare("all within 3 of 64 bits", request(queries(), radius=3), "mih", 20, max_share=0.001)


def nearest_rows() -> Iterator[Row]:
    yield from compare("top 10, tenth within 8 bits", request(queries(), k=10), "mih", 5)


def chosen_rows() -> Iterator[Row]:
    """Compare the chosen plan with the scan: it must be as fast, whatever is asked."""
    far = np.random.default_rng(3).integers(0, 256, (QUERIES, 8), dtype=np.uint8)
    mixed = np.where(np.arange(QUERIES)[:, None] % 2, far, queries())
    for name, codes in (("near", queries()), ("uniform", far), ("every second one near", mixed)):
        yield from compare(f"top 10, {name} queries, chosen plan", request(codes, k=10), None, 1 / 1.1)
    for radius in (3, 8, 10, 12, 16):
        yield from compare(f"all within {radius} bits, chosen plan", request(far, radius=radius), None, 1 / 1.1)


def build_rows() -> Iterator[Row]:
    index, seconds = timed(build_multi_index, segment(), 64)
    expected = costs.build_seconds(ITEMS, choose_substrings(64, ITEMS))
    yield Row("seconds to build the tables", seconds, "", True, seconds, note=f"the cost model expects {expected:.1f}")
    announced = choose_substrings(64, ITEMS).memory(ITEMS, 64)
    reached = abs(index.memory - announced) < 4096
    yield Row("MB of the tables", index.memory / 1e6, f"{announced / 1e6:.1f} announced", reached, 0.0)


def constant_rows() -> Iterator[Row]:
    """Measure the nanoseconds of the cost model, as its module has them."""
    asked = np.ascontiguousarray(to_words(queries()).T)
    for threads in (1, available_threads()):
        many = min(timed(segment().nearest, asked, 10, threads)[1] for _ in range(TURNS)) / QUERIES / ITEMS
        one = min(timed(segment().nearest, asked[row : row + 1], 10, threads)[1] for row in range(20)) / ITEMS
        name = f"scan, {threads} threads: ns for a word of a code"
        yield Row(f"{name}, {QUERIES:,} queries", 1e9 * many, f"{costs.SCAN_NS / threads:g}", True, 0.0)
        yield Row(f"{name}, one query", 1e9 * one, f"{costs.READ_NS + costs.SCAN_NS / threads:g}", True, 0.0)
    yield from _cluster_rows()
    for count in (100_000, 1_000_000, ITEMS):
        yield from _fitted(count)


def _cluster_rows() -> Iterator[Row]:
    """Measure the time of clusters for a code that they compare: 1,000 centers, a bit in twenty flipped."""
    centers = np.random.default_rng(3).integers(0, 256, (1000, 8), dtype=np.uint8)
    own = np.random.default_rng(4).integers(0, len(centers), ITEMS).astype(np.uint16)
    words = to_words(noisy(centers[own], 5))
    numbers, sizes = np.arange(ITEMS, dtype=np.uint32), np.bincount(own, minlength=len(centers))
    centroids = np.ascontiguousarray(to_words(centers).T)
    clusters = build_clustered_segment(centroids, sizes, lambda sink: sink(words, numbers, own), ITEMS)
    asked = np.ascontiguousarray(to_words(noisy(centers, 6)).T)
    for count in (QUERIES, 20):
        for threads in (1, available_threads()):
            seconds, compared = np.inf, 0
            for _ in range(TURNS):
                (_, compared), spent = timed(clusters.nearest, asked[:count], 10, threads)
                seconds = min(seconds, spent)
            name = f"clusters, {threads} threads: ns for a word of a code, {count:,} queries"
            note = f"{compared / count:,.0f} codes compared a query"
            yield Row(name, 1e9 * seconds / compared, f"{costs.CLUSTER_NS / threads:g}", True, seconds, note=note)


def noisy(codes: Packed, seed: int) -> Packed:
    """Return codes with a bit in twenty flipped, in parts to limit memory."""
    random, out = np.random.default_rng(seed), codes.copy()
    for first in range(0, len(out), 1 << 18):
        part = out[first : first + (1 << 18)]
        part ^= np.packbits(random.random((len(part), 64), dtype=np.float32) < 0.05, axis=1)
    return out


def _fitted(count: int) -> Iterator[Row]:
    """Fit the time of a step, of a lookup and of an entry to searches of growing radius, one thread."""
    words = to_words(stored()[-count:])
    part = build_flat_segment(
        64, count, lambda sink: sink(words, np.arange(count, dtype=np.uint32), np.zeros(count, np.uint16))
    )
    index, seconds = timed(build_multi_index, part, 64, 1)
    lengths = index.tables.lengths.tolist()
    rows = []
    for radius in range(13):
        fresh = np.random.default_rng(radius).integers(0, 2**64, (TURNS, 300, 1), dtype=np.uint64)
        found = [timed(index.range_search, asked, radius, 1) for asked in fresh]
        lookups = sum(math.comb(lengths[step % len(lengths)], step // len(lengths)) for step in range(radius + 1))
        best = min(spent for _, spent in found) / 300
        rows.append((radius + 1, lookups, float(found[0][0].compared.mean()), 1e9 * best))
    table = np.array(rows)
    predicted = _predicted(index, table)
    ratio = predicted / table[:, 3]
    note = "predicted / measured by radius 0 to 12: " + " ".join(f"{value:.2f}" for value in ratio)
    yield Row(
        f"{count:,} codes: expected over measured time, median", float(np.median(ratio)), "about 1", True, 0.0, note=note
    )
    entries = count * len(lengths)
    yield Row(
        f"{count:,} codes: ns to sort a code into a table", 1e9 * seconds / entries, f"{costs.BUILD_NS:g}", True, seconds
    )


def _predicted(index: MultiIndex, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nanoseconds that the cost model expects for rows of steps, lookups and entries."""
    in_memory = index.memory > costs.CACHE_BYTES
    lookup, entry = costs.LOOKUP_NS[in_memory], costs.ENTRY_NS[in_memory]
    expected: NDArray[np.float64] = costs.STEP_NS * table[:, 0] + lookup * table[:, 1] + entry * table[:, 2]
    return expected


def main() -> None:
    cold_start.end()
    sections = {
        "range": range_rows,
        "nearest": nearest_rows,
        "chosen": chosen_rows,
        "build": build_rows,
        "constants": constant_rows,
    }
    run("Multi-index hashing against its targets", sections, options_of(__doc__, list(sections)))


if __name__ == "__main__":
    main()
