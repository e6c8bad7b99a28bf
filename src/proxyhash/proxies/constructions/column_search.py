"""Tabu search for the columns of a linear code: remove the cheapest column, add the best one.

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
_TENURE = 3  # smallest number of steps for which a moved column is tabu; the largest is twice as many
_RANDOM_REMOVALS = 0.2  # share of steps that remove a random column, without which the search cycles


def search_columns(k: int, bits: int, most: int, start: Columns | None = None) -> Columns:
    """Return nonzero columns (d,) of a [d, k] code, d >= k, of the largest distance found, at most `most`.

    From `start`, or from scratch, the target rises until a search fails. For an even target, the odd distance below it is
    searched with one bit less, and the parity bit is added. All but one of the complete sets of all columns are fixed.
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
    """Return the unit vectors and random columns (d,); no column repeats before all occur."""
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
    """Return `bits` columns: the cheapest are removed, or the best added, one by one."""
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
    """Write to `values` (2^k,) the merit of adding each column: how much it lowers the penalty."""
    values[0] = 0
    for x in range(1, len(values)):
        short = max(0, goal - counts[x])
        values[x] = 1 - 2 * short if short else 0
    walsh_hadamard(values)


@jit(nogil=True)
def _removal_values(counts: NDArray[np.int64], goal: int, values: NDArray[np.float64]) -> None:
    """Write to `values` (2^k,) the merit of removing each column: how little it raises the penalty."""
    values[0] = 0
    for x in range(1, len(values)):
        values[x] = 2 * (goal - counts[x]) + 1 if goal >= counts[x] else 0
    walsh_hadamard(values)


@jit(nogil=True)
def _reach(columns: Columns, counts: NDArray[np.int64], goal: int, steps: int, random: np.random.Generator) -> bool:
    """Exchange columns and their weights `counts` (2^k,) in place until no weight is below `goal`; return success."""
    size, bits = len(counts), len(columns)
    values, everything = np.empty(size), np.arange(1, size)
    parity = np.zeros(size, np.int8)
    for x in range(1, size):
        parity[x] = parity[x >> 1] ^ (x & 1)
    free_from = np.zeros(size, np.int64)  # first step at which a column may move again
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
    """Return the index in `columns` of the largest value that is not tabu, ties at random, or `place` if all are tabu."""
    highest, ties = -np.inf, 0
    for candidate in range(len(columns)):
        value = values[columns[candidate]]
        if value < highest or free_from[columns[candidate]] > step:
            continue
        ties = ties + 1 if value == highest else 1
        if ties == 1 or random.random() * ties < 1:
            place, highest = np.int64(candidate), value
    return place
