"""Search kernels of multi-index hashing, each for one thread without the interpreter's lock.

Step r visits substring t = r mod m at the exact distance r // m. After steps 0 to r, every code within r bits of the query
was seen: with r = m a + b, a code that no step has seen differs in at least a + 1 bits of the substrings 0 to b and in a of
the others, which is more than r. Only the first step that sees a code reports it, so that no list of seen codes is needed.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words
from proxyhash.codes.kernels import popcount
from proxyhash.index.clusters.candidates import lowest_bit
from proxyhash.index.clusters.topk import TopK, pack_rank, push
from proxyhash.index.item_ids import Int, Int64s
from proxyhash.index.mih.tables import Tables, substring_value
from proxyhash.utils.jit import jit

Slots = NDArray[np.uint32]

_BUCKETS = 64  # whose offsets are read before their entries: the processor fetches them at the same time


class Allowed(NamedTuple):
    """Codes that may be found: those whose slot is set in the bits of `words` (M,); all if M is 0."""

    words: Words
    slots: Slots
    """(N,): the slot of each position; (0,): a position is the slot"""


class Limits(NamedTuple):
    """Where the search of a query stops: after step `radius`, or after more than `compared` codes."""

    radius: int
    compared: int


@jit(nogil=True)
def search(
    queries: Words, tables: Tables, allowed: Allowed, limits: Limits, top: TopK, compared: Int64s, reached: Int64s
) -> None:
    """Fill `top` with the nearest codes of each of `queries` (Q, W), nearest first, among those within `top.limit` (Q,).

    `compared` (Q,) counts the codes that were compared. All codes within `reached` (Q,) bits were seen; -1 if even equal
    codes may be missing. A search ends when the k-th code is within that distance, or at a limit.
    """
    begins, ends = np.empty(_BUCKETS, np.int64), np.empty(_BUCKETS, np.int64)
    for q in range(len(queries)):
        reached[q] = _search_steps(queries, q, tables, allowed, limits, top, compared, begins, ends)
        order = np.argsort(top.ranks[q, : top.counts[q]])
        top.ranks[q, : len(order)], top.slots[q, : len(order)] = top.ranks[q][order], top.slots[q][order]


@jit(nogil=True, skip_refcounts=True)
def _search_steps(
    queries: Words,
    q: Int,
    tables: Tables,
    allowed: Allowed,
    limits: Limits,
    top: TopK,
    compared: Int64s,
    begins: Int64s,
    ends: Int64s,
) -> Int:
    """Search for one query, and return the radius within which all codes were seen."""
    number, everything = len(tables.starts), np.int64(64 * queries.shape[1])
    for step in range(limits.radius + 1):
        table, distance = step % number, step // number
        if distance <= tables.lengths[table]:
            _visit(queries, q, tables, table, distance, allowed, limits.compared, top, compared, begins, ends)
            if compared[q] > limits.compared:
                return step - 1
            if distance == tables.lengths[table]:
                return everything  # all buckets of this table were visited
        if top.counts[q] == top.ranks.shape[1] and top.limit[q] <= step:
            return step
    return limits.radius


@jit(nogil=True, skip_refcounts=True)
def _visit(
    queries: Words,
    q: Int,
    tables: Tables,
    table: Int,
    distance: Int,
    allowed: Allowed,
    max_compared: Int,
    top: TopK,
    compared: Int64s,
    begins: Int64s,
    ends: Int64s,
) -> None:
    """Compare the codes in all buckets whose value differs from the query's in so many bits."""
    value = _query_value(queries, q, tables, table)
    word, words = queries[q, tables.word_index[table]], tables.words[table]
    flips: Int = (np.int64(1) << distance) - 1
    end = np.int64(1) << tables.lengths[table]
    while flips < end and compared[q] <= max_compared:
        buckets = 0
        while flips < end and buckets < _BUCKETS:
            bucket = tables.bases[table] + (value ^ flips)
            begins[buckets], ends[buckets] = tables.offsets[bucket], tables.offsets[bucket + 1]
            buckets += begins[buckets] < ends[buckets]
            flips = _next_flips(flips, end)
        limit = top.limit[q]
        for bucket in range(buckets):
            compared[q] += ends[bucket] - begins[bucket]
            for entry in range(begins[bucket], ends[bucket]):
                if np.int64(popcount(word ^ words[entry])) <= limit:
                    _push_entry(queries, q, tables, table, distance, entry, allowed, top)
                    limit = top.limit[q]


@jit(nogil=True, skip_refcounts=True, inline="always")
def _query_value(queries: Words, q: Int, tables: Tables, table: Int) -> Int:
    """Return the value of a substring of a query."""
    start = tables.starts[table]
    second = min((start >> 6) + 1, queries.shape[1] - 1)
    return np.int64(substring_value(queries[q, start >> 6], queries[q, second], start, tables.lengths[table]))


@jit(nogil=True, skip_refcounts=True, inline="always")
def _next_flips(flips: Int, end: Int) -> Int:
    """Return the next number with as many ones; `end` or more if there is none (Gosper's hack)."""
    if flips == 0:
        return end
    lowest = flips & -flips
    carried = flips + lowest
    return carried | (((flips ^ carried) >> 2) >> np.int64(lowest_bit(np.uint64(flips))))


@jit(nogil=True, skip_refcounts=True, inline="always")
def _is_allowed(allowed: Allowed, position: Int) -> Any:
    """Return whether the code at a position may be found."""
    if len(allowed.words) == 0:
        return True
    slot = np.int64(allowed.slots[position]) if len(allowed.slots) > 0 else np.int64(position)
    return allowed.words[slot >> 6] >> np.uint64(slot & 63) & np.uint64(1) != 0


@jit(nogil=True, skip_refcounts=True)
def _push_entry(
    queries: Words, q: Int, tables: Tables, table: Int, distance: Int, entry: Int, allowed: Allowed, top: TopK
) -> None:
    """Keep the code of an entry if it is near enough, allowed, and was not reported by an earlier step."""
    position, parts, number = tables.positions[table, entry], queries.shape[1], len(tables.starts)
    codes, row = (tables.words[table : table + 1].T, np.int64(entry)) if parts == 1 else (tables.rows, np.int64(position))
    total = np.int64(0)
    for part in range(parts):
        total += np.int64(popcount(queries[q, part] ^ codes[row, part]))
    if total > top.limit[q] or not _is_allowed(allowed, position):
        return
    for other in range(number):
        start = tables.starts[other]
        part, next_part = start >> 6, min((start >> 6) + 1, parts - 1)
        first, second = queries[q, part] ^ codes[row, part], queries[q, next_part] ^ codes[row, next_part]
        away = np.int64(popcount(substring_value(first, second, start, tables.lengths[other])))
        if number * away + other < number * distance + table:
            return
    push(top, q, pack_rank(total, tables.item_ids[position]), np.int64(position))
