"""Scans of codes by several threads: over ranges of blocks if there are many, else over queries."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed
from proxyhash.codes.bitsliced.kernels import Collected, Nearest
from proxyhash.codes.kernels import group_by_query, sort_rows
from proxyhash.codes.sources import CodeSource, limit_planes
from proxyhash.utils.parallel import available_threads, leaf_map
from proxyhash.utils.validation import check_int

MAX_QUERIES = 512  # that one pass over the database serves
_MIN_RANGE = 64  # blocks of a range of the database that a thread searches
_MAX_CACHED = 1 << 16  # planes of 64 bytes that stay in the caches of a core, so that each query may read them again
_MIN_QUERIES = 8  # of a thread that searches a database in the caches: they find their limits once, not in every range
_MIN_WORK = 1 << 17  # planes that a thread reads, or compares with eight queries: to hand work over takes longer than fewer
_MAX_MERGED = 1024  # nearest items of a query that are merged from several ranges
_MAX_CANDIDATES = 10_000_000  # in the buffers of a thread: 100 MB
_MAX_LEVELS = 13  # planes of a distance: 4096 is the largest
_UNUSED = np.iinfo(np.int64).max

Int64s = NDArray[np.int64]
Part = TypeVar("Part")


def nearest(source: CodeSource, queries: Packed, k: int, threads: int | None = None) -> tuple[NDArray[np.int16], Int64s]:
    """Return distances and slots (Q, k) of the nearest items of packed queries (Q, bytes), ties by slot.

    If fewer items may be found, k is their number.
    """
    k = min(k, source.num_valid)
    distances, slots = np.empty((len(queries), k), np.int16), np.empty((len(queries), k), np.int64)
    if not k:
        return distances, slots

    def search(rows: slice, blocks: range) -> Nearest:
        found = _empty_nearest(rows.stop - rows.start, k, source.bits + 1)
        source.update_nearest(queries[rows], found, blocks)
        sort_rows(found.distances, found.slots, found.held, source.bits + 1)
        return found

    most = max(1, _MAX_CANDIDATES // (2 * k))
    for rows, parts in _map_tasks(source, len(queries), threads, search, most, split=k <= _MAX_MERGED):
        distances[rows], slots[rows] = _merge(parts, k)
    return distances, slots


def _empty_nearest(queries: int, k: int, bins: int) -> Nearest:
    shape, limits = (queries, 2 * k), np.full(queries, bins, np.int64)
    held, limit_bits = np.zeros(queries, np.int64), limit_planes(limits, _MAX_LEVELS)
    return Nearest(np.empty(shape, np.int16), np.empty(shape, np.int64), held, limits, limit_bits)


def _merge(parts: list[Nearest], k: int) -> tuple[NDArray[np.int16], Int64s]:
    """Return the k nearest items (Q, k) of sorted parts, ties by slot."""
    if len(parts) == 1:
        return parts[0].distances[:, :k], parts[0].slots[:, :k]
    columns = np.arange(k)
    ranks = [
        np.where(columns < part.held[:, None], part.distances[:, :k].astype(np.int64) << 40 | part.slots[:, :k], _UNUSED)
        for part in parts
    ]
    best = np.sort(np.concatenate(ranks, axis=1), axis=1)[:, :k]
    return (best >> 40).astype(np.int16), best & ((1 << 40) - 1)


def collect(
    source: CodeSource, queries: Packed, radii: Int64s, threads: int | None = None
) -> tuple[Int64s, NDArray[np.int16], Int64s]:
    """Return all items within the radius (Q,) of each packed query (Q, bytes), nearest first, ties by slot.

    The result is `starts` (Q + 1,), distances (n,) and slots (n,): query q has entries starts[q] to starts[q + 1].
    """
    limits = np.clip(radii + 1, 0, source.bits + 1)

    def search(rows: slice, blocks: range) -> list[Collected]:
        return source.collect(queries[rows], limits[rows], blocks)

    groups = []
    for rows, parts in _map_tasks(source, len(queries), threads, search):
        pieces = [piece for part in parts for piece in part]
        numbers, distances, slots = (np.concatenate([piece[f][: piece.state[0]] for piece in pieces]) for f in range(3))
        groups.append(group_by_query(numbers, distances, slots, rows.stop - rows.start, source.bits + 1))
    counts, distances, slots = (np.concatenate([group[field] for group in groups]) for field in range(3))
    return np.concatenate([[0], np.cumsum(counts)]), distances, slots


def _map_tasks(
    source: CodeSource,
    queries: int,
    threads: int | None,
    work: Callable[[slice, range], Part],
    max_queries: int = MAX_QUERIES,
    *,
    split: bool = True,
) -> Iterator[tuple[slice, list[Part]]]:
    """Yield slices of the queries with the results of `work` for each range of blocks, in order."""
    threads = available_threads() if threads is None else check_int("threads", threads, minimum=1)
    threads = min(threads, 1 + source.num_blocks * source.bits * (8 + queries) // (8 * _MIN_WORK))
    is_cached = source.num_blocks * source.bits <= _MAX_CACHED and queries >= _MIN_QUERIES * threads
    ranges = max(1, min(threads, source.num_blocks // _MIN_RANGE)) if split and not is_cached else 1
    size = max(1, min(max_queries, MAX_QUERIES, -(-queries // -(-threads // ranges))))
    slices = [slice(first, min(first + size, queries)) for first in range(0, queries, size)]
    bounds = [source.num_blocks * i // ranges for i in range(ranges + 1)]
    tasks = [(rows, range(bounds[i], bounds[i + 1])) for rows in slices for i in range(ranges)]
    results = leaf_map(lambda task: work(*task), tasks, threads)
    for rows in slices:
        yield rows, [next(results) for _ in range(ranges)]
