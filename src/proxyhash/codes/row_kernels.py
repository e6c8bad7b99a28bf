"""Hamming distance kernels for a few queries and plain codes, which are read row by row and not converted.

Each is for one thread without the interpreter's lock. `Nearest` and `Collected` are those of the bit-sliced kernels.
"""

import numpy as np

from proxyhash.codes.bits import Words
from proxyhash.codes.bitsliced.kernels import Collected, Int, Nearest
from proxyhash.codes.bitsliced.slicing import CodeRows
from proxyhash.codes.kernels import CHUNK, Int64Array, popcount, sort_by_distance
from proxyhash.utils.jit import jit


@jit(nogil=True)
def _chunk_distances(rows: CodeRows, flat: CodeRows, first: int, last: int, queries: CodeRows, q: int, out: Words) -> Int:
    """Write the distances of codes first to last to query q to `out`, and return the least of them.

    `flat` (N W,) are the codes `rows` (N, W) again. Its stride is known when this is compiled, so that a loop over codes of
    one or two words is vectorized; one over many words of a code is so anyway.
    """
    if rows.shape[1] == 1:
        part, only = flat[first:last], np.uint64(queries[q, 0])
        for item in range(len(part)):
            out[item] = popcount(np.uint64(part[item]) ^ only)
    elif rows.shape[1] == 2:
        part, one, two = flat[2 * first : 2 * last], np.uint64(queries[q, 0]), np.uint64(queries[q, 1])
        for item in range(last - first):
            out[item] = popcount(np.uint64(part[2 * item]) ^ one) + popcount(np.uint64(part[2 * item + 1]) ^ two)
    else:
        for item in range(last - first):
            total = np.uint64(0)
            for word in range(rows.shape[1]):
                total += popcount(np.uint64(rows[first + item, word]) ^ np.uint64(queries[q, word]))
            out[item] = total
    least = np.uint64(2**63)
    for item in range(last - first):
        least = min(least, out[item])
    return np.int64(least)


@jit(nogil=True)
def nearest_rows(rows: CodeRows, begin: int, end: int, queries: CodeRows, nearest: Nearest, bins: int) -> None:
    """Update the nearest items of all queries by the codes `begin` to `end` of `rows` (N, W)."""
    chunk, size = np.empty(CHUNK, np.uint64), nearest.distances.shape[1]
    flat = rows.reshape(rows.size)
    for first in range(begin, end, CHUNK):
        last = min(first + CHUNK, end)
        for q in range(len(queries)):
            if _chunk_distances(rows, flat, first, last, queries, q, chunk) >= nearest.limits[q]:
                continue
            for item in range(last - first):
                if np.int64(chunk[item]) < nearest.limits[q]:
                    held = nearest.held[q]
                    nearest.distances[q, held], nearest.slots[q, held] = chunk[item], first + item
                    nearest.held[q] = held + 1
                    if held + 1 == size:
                        sort_by_distance(nearest.distances[q], nearest.slots[q], size, bins)
                        nearest.held[q], nearest.limits[q] = size // 2, nearest.distances[q, size // 2 - 1]


@jit(nogil=True)
def collect_rows(rows: CodeRows, end: int, queries: CodeRows, limits: Int64Array, found: Collected) -> bool:
    """Append all codes below the limits (Q,) of the queries, up to `end`; return False if there is no room.

    `found.state` holds the code and the query at which the next call goes on.
    """
    chunk, state = np.empty(CHUNK, np.uint64), found.state
    flat = rows.reshape(rows.size)
    for first in range(state[1], end, CHUNK):
        last = min(first + CHUNK, end)
        for q in range(state[2] if first == state[1] else 0, len(queries)):
            if state[0] + CHUNK > len(found.slots):
                state[1], state[2] = first, q
                return False
            if _chunk_distances(rows, flat, first, last, queries, q, chunk) < limits[q]:
                for item in range(last - first):
                    if np.int64(chunk[item]) < limits[q]:
                        found.queries[state[0]], found.distances[state[0]] = q, chunk[item]
                        found.slots[state[0]] = first + item
                        state[0] += 1
    return True
