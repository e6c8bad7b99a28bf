"""A tabu search for the columns of a linear code: take the cheapest column out, put the best one in.

The penalty of a code is sum_x f(w(x)) over messages x != 0 with f(w) = max(0, goal - w)^2 and w(x) the weight. What one
more column c changes in it is sum_x [c . x = 1] g(x) with g(x) = f(w(x) + 1) - f(w(x)), and one Walsh-Hadamard transform of
g gives that for all 2^k columns.
"""

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.constructions.linear import (
    Columns,
    add_parity,
    griesmer_bound,
    linear_distance,
    walsh_hadamard,
    word_weights,
)
from proxyhash.utils.jit import jit
from proxyhash.utils.random import generator

_MAX_ADDITIONS = 2e8  # additions in the transforms of one search: about a second
_MAX_STEPS = 20_000  # up to k = 7 and 64 bits every best code is found within 5,000
_TENURE = 3  # steps for which a moved column stays where it is, at least; at most twice as many
_RANDOM_REMOVALS = 0.2  # the share of steps that take out any column: without them the search runs in circles


def search_columns(k: int, bits: int, most: int, start: Columns | None = None) -> Columns:
    """Return columns (d,) of a [d, k] code, d >= k, of the largest distance found, no further than `most`; none is 0.

    From `start`, or from scratch, the goal rises until a search fails. An even goal is searched as the odd one below it in
    one bit less, to which the parity bit is added. Whole copies of all columns, one kept back, are not searched.
    """
    copies = max(0, bits // ((1 << k) - 1) - 1) if start is None else 0
    fixed = np.tile(np.arange(1, 1 << k), copies)
    best = initial_columns(k, bits - len(fixed)) if start is None else start
    most = min(most, griesmer_bound(bits, k)) - copies * (1 << k) // 2
    reached = linear_distance(best, k)
    while reached < most:
        goal = reached + 1
        first = best if start is not None else initial_columns(k, len(best))
        found = _search(k, first, goal)
        if found is None:
            break
        best, reached = found, linear_distance(found, k)
    return np.concatenate((fixed, best))


def initial_columns(k: int, bits: int) -> Columns:
    """Return the unit vectors and random columns (d,), all of them before any twice."""
    random = generator(0, "columns", k, bits)
    units = 1 << np.arange(k)
    rounds = [random.permutation((1 << k) - 1) + 1 for _ in range(bits // ((1 << k) - 1) + 1)]
    return np.concatenate((units, *rounds))[:bits]


def _search(k: int, start: Columns, goal: int) -> Columns | None:
    steps = int(min(_MAX_STEPS, _MAX_ADDITIONS / (k << k)))
    random = generator(0, "column search", k, len(start), goal)
    columns = (start if goal % 2 else start[1:]).copy()
    if not _reach(columns, word_weights(columns, k), goal - 1 + goal % 2, steps, random):
        return None
    return columns if goal % 2 else add_parity(columns)


def resize_columns(columns: Columns, k: int, bits: int) -> Columns:
    """Return `bits` columns: the cheapest are taken out, or the best put in, one after the other."""
    columns = columns.copy()
    while len(columns) != bits:
        counts = word_weights(columns, k)
        goal = int(counts[1:].min()) + 2
        values = np.empty(1 << k)
        if len(columns) > bits:
            _removal_values(counts, goal, values)
            columns = np.delete(columns, values[columns].argmax())
        else:
            _addition_values(counts, goal, values)
            columns = np.append(columns, 1 + values[1:].argmax())
    return columns


@jit(nogil=True)
def _addition_values(counts: NDArray[np.int64], goal: int, values: NDArray[np.float64]) -> None:
    """Write to `values` (2^k,) numbers that are larger the more a column would lower the penalty."""
    values[0] = 0
    for x in range(1, len(values)):
        short = max(0, goal - counts[x])
        values[x] = 1 - 2 * short if short else 0
    walsh_hadamard(values)


@jit(nogil=True)
def _removal_values(counts: NDArray[np.int64], goal: int, values: NDArray[np.float64]) -> None:
    """Write to `values` (2^k,) numbers that are larger the less the penalty would rise without a column."""
    values[0] = 0
    for x in range(1, len(values)):
        values[x] = 2 * (goal - counts[x]) + 1 if goal >= counts[x] else 0
    walsh_hadamard(values)


@jit(nogil=True)
def _reach(columns: Columns, counts: NDArray[np.int64], goal: int, steps: int, random: np.random.Generator) -> bool:
    """Exchange columns in place, with the weights `counts` (2^k,), until no weight is below `goal`, or give up."""
    size, bits = len(counts), len(columns)
    values, everything = np.empty(size), np.arange(1, size)
    parity = np.zeros(size, np.int8)
    for x in range(1, size):
        parity[x] = parity[x >> 1] ^ (x & 1)
    free_from = np.zeros(size, np.int64)  # the step from which on a column may move again
    for step in range(1, steps + 1):
        place = np.int64(random.random() * bits)
        if random.random() >= _RANDOM_REMOVALS:
            _removal_values(counts, goal, values)
            place = _largest(values, columns, free_from, step, random, place)
        old = columns[place]
        for x in range(1, size):
            counts[x] -= parity[x & old]
        free_from[old] = step + _TENURE + np.int64(random.random() * (_TENURE + 1))
        _addition_values(counts, goal, values)
        new = everything[_largest(values, everything, free_from, step, random, old - 1)]
        columns[place] = new
        free_from[new] = step + _TENURE + np.int64(random.random() * (_TENURE + 1))
        least = counts[1] + parity[1 & new]
        for x in range(1, size):
            counts[x] += parity[x & new]
            least = min(least, counts[x])
        if least >= goal:
            return True
    return False


@jit(nogil=True)
def _largest(
    values: NDArray[np.float64],
    columns: Columns,
    free_from: NDArray[np.int64],
    step: int,
    random: np.random.Generator,
    place: np.int64,
) -> np.int64:
    """Return the place in `columns` of the largest value among those free to move, ties by lot, or `place` if none is."""
    highest, ties = -np.inf, 0
    for candidate in range(len(columns)):
        value = values[columns[candidate]]
        if value < highest or free_from[columns[candidate]] > step:
            continue
        ties = ties + 1 if value == highest else 1
        if ties == 1 or random.random() * ties < 1:
            place, highest = np.int64(candidate), value
    return place
