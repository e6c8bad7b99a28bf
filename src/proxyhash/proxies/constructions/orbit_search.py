"""Search for linear codes with a symmetry, whose columns form whole orbits.

With k even, multiplication in GF(2^k) by an element of order 3 and the map x -> x^4 permute the columns; codes made of whole
orbits are codes over GF(4) with a symmetry of their own. At k = 10 there are 69 orbits in place of 1,023 columns, and a
[120, 10, 56] code that grows to [128, 10, 60] is found in a fraction of a second, which no search over single columns does.
"""

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.constructions.column_search import resize_columns
from proxyhash.proxies.constructions.field import generator_powers
from proxyhash.proxies.constructions.linear import Columns, linear_distance, word_weights
from proxyhash.utils.jit import jit
from proxyhash.utils.random import generator

_STARTS = 3
_STEPS = 8_000
_BITS_LEFT_OVER = 8  # that single columns fill
_WORTH = 0.47  # distance per bit left over; a random column adds nearly a half


def orbit_columns(k: int, bits: int, most: int) -> Columns:
    """Return columns (d,) of a [d, k] code, k even, most of them in whole orbits; `most` is the target distance."""
    orbits = column_orbits(k)
    sizes = np.array([len(orbit) for orbit in orbits])
    added = np.unique([word_weights(orbit, k)[1:] for orbit in orbits], axis=1)  # messages of one orbit have equal weights
    found = []
    for start in range(_STARTS):
        chosen = _choose(added, sizes, bits, most - most % 2, _STEPS, generator(0, "orbits", k, bits, start))
        whole = [orbit for orbit, taken in zip(orbits, chosen, strict=True) if taken]
        found.append(resize_columns(np.concatenate(whole or [np.arange(1, 1 << k)]), k, bits))
    return max(found, key=lambda columns: linear_distance(columns, k))


def column_orbits(k: int) -> list[Columns]:
    """Return the orbits of columns under multiplication by an element of order 3 and under x -> x^4."""
    powers = generator_powers(2, k)
    order = len(powers)
    left, orbits = set(range(order)), []
    while left:
        first = min(left)
        fourth_powers = {first * 4**i % order for i in range(k)}
        orbit = {(exponent + third * order // 3) % order for exponent in fourth_powers for third in range(3)}
        orbits.append(powers[sorted(orbit)])
        left -= orbit
    return orbits


@jit(nogil=True)
def _choose(
    added: NDArray[np.int64], sizes: NDArray[np.int64], bits: int, goal: int, steps: int, random: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which orbits (m,) to use, by tabu search over single additions and removals.

    `added` (m, classes of messages) is the contribution of an orbit to the weights. The goal is lower for fewer bits.
    """
    taken = np.zeros(len(sizes), np.bool_)
    best_taken, best = taken.copy(), -np.inf
    reached = np.zeros(added.shape[1], np.int64)
    total = 0
    free_from = np.zeros(len(sizes), np.int64)
    for step in range(1, steps + 1):
        place, lowest, ties = -1, np.inf, 0
        for orbit in range(len(sizes)):
            way = -1 if taken[orbit] else 1
            length = total + way * sizes[orbit]
            if free_from[orbit] > step or length > bits or (way < 0 and total < bits - _BITS_LEFT_OVER):
                continue
            lower_goal, penalty = goal - _WORTH * (bits - length), 0.0
            for x in range(len(reached)):
                short = max(0.0, lower_goal - reached[x] - way * added[orbit, x])
                penalty += short * short
            if penalty > lowest:
                continue
            ties = ties + 1 if penalty == lowest else 1
            if ties == 1 or random.random() * ties < 1:
                place, lowest = orbit, penalty
        if place < 0:
            continue
        way = -1 if taken[place] else 1
        taken[place] = way > 0
        total += way * sizes[place]
        reached += way * added[place]
        free_from[place] = step + 2 + np.int64(random.random() * 5)
        worth = reached.min() + _WORTH * (bits - total)
        if total >= bits - _BITS_LEFT_OVER and worth > best:
            best, best_taken = worth, taken.copy()
    return best_taken
