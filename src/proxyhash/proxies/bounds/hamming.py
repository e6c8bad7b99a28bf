"""Upper bounds on the minimal distance of C words of d bits, in exact arithmetic.

A(d, D) is the largest number of words of d bits with pairwise distances of at least D. For odd D, A(d, D) = A(d + 1, D + 1),
so the functions below are called for even D only.
"""

from fractions import Fraction
from functools import cache
from math import comb

import numpy as np
from scipy.optimize import linprog

# The best known upper bounds on A(n, D) for n up to 28, where the general bounds below are not tight.
# Column D starts at the length beside it. Source: A. E. Brouwer's table of general binary codes, which continues
# Best, Brouwer, MacWilliams, Odlyzko and Sloane, "Bounds for binary codes of length less than 25" (1978).
_FIRST_LENGTH_AND_SIZES = {
    4: (6, [4, 8, 16, 20, 40, 72, 144, 256, 512, 1024, 2048, 3276, 6552, 13104, 26168, 43688, 87333, 172361, 344308,
            599184, 1198368, 2396736, 4792950]),
    6: (9, [4, 6, 12, 24, 32, 64, 128, 256, 340, 673, 1237, 2279, 4096, 6941, 13674, 24106, 47538, 84260, 157285, 291269]),
    8: (12, [4, 4, 8, 16, 32, 36, 64, 128, 256, 512, 1024, 2048, 4096, 5421, 9275, 17099, 32151]),
    10: (15, [4, 4, 6, 10, 20, 40, 47, 84, 150, 268, 466, 836, 1585, 2817]),
    12: (18, [4, 4, 6, 8, 12, 24, 48, 55, 96, 169, 288]),
}  # fmt: skip
KNOWN_SIZES = {
    (first + row, distance): size
    for distance, (first, sizes) in _FIRST_LENGTH_AND_SIZES.items()
    for row, size in enumerate(sizes)
}
"""Upper bounds on A(n, D), by (n, D)."""

_STEPS_PER_UNIT = 2**40  # the solution of the linear program is rounded to this grid before it is verified
_LINEAR_PROGRAM_UP_TO = 256  # with more bits, its exact check takes too long


@cache
def largest_min_distance(words: int, bits: int) -> int:
    """Return an upper bound on the minimal Hamming distance of any C >= 2 distinct words of d bits (C <= 2^d)."""
    distance = bits
    while distance > 1 and not _is_possible(words, bits, distance):
        distance -= 1
    return distance


def _is_possible(words: int, bits: int, distance: int) -> bool:
    """Return whether no bound excludes `words` words of `bits` bits at `distance`; cheap bounds come first."""
    n, d = (bits, distance) if distance % 2 == 0 else (bits + 1, distance + 1)
    if plotkin_bound(n, d) < words or KNOWN_SIZES.get((n, d), words) < words or hamming_bound(n, d) < words:
        return False
    return n > _LINEAR_PROGRAM_UP_TO or delsarte_bound(n, d) >= words


def plotkin_bound(n: int, d: int) -> int:
    """Return the Plotkin bound for even d: 2 floor(d / (2d - n)) if 2d > n, 4d if 2d = n; longer codes are shortened."""
    if 2 * d > n:
        return 2 * (d // (2 * d - n))
    return 4 * d << (n - 2 * d)  # A(n, d) <= 2 A(n - 1, d)


def hamming_bound(n: int, d: int) -> int:
    """Return the sphere-packing bound for even d: balls of radius (d - 2) / 2 around words of n - 1 bits are disjoint."""
    return int(2 ** (n - 1) // sum(comb(n - 1, k) for k in range((d - 2) // 2 + 1)))


@cache
def delsarte_bound(n: int, d: int) -> int:
    """Return the linear programming bound of Delsarte on A(n, d) for even d, valid for any rounding of the solver.

    Dual program, with Q_k(i) = K_k(i) / C(n, k) the Krawtchouk polynomials scaled to 1 at 0: any g_k >= 0 with
    f(i) = 1 + sum_k g_k Q_k(i) <= 0 at every distance i that may occur gives A(n, d) <= f(0) = 1 + sum_k g_k.
    With d even the code may be taken even, so i runs over even numbers, and k up to n / 2 suffices.
    """
    values = [[_scaled_krawtchouk(n, k, i) for k in range(1, n // 2 + 1)] for i in range(d, n + 1, 2)]
    table = np.array(values, dtype=float)
    found = linprog(np.ones(table.shape[1]), A_ub=table, b_ub=-np.ones(len(table)), method="highs")
    if found.x is None:
        return 1 << n
    return _verify([Fraction(max(0, round(g * _STEPS_PER_UNIT)), _STEPS_PER_UNIT) for g in found.x], values, n)


def _verify(weights: list[Fraction], values: list[list[Fraction]], n: int) -> int:
    """Return a valid bound from a nearly feasible solution: f is lowered by its largest violation v, f(0) / (1 - v)."""
    worst = max(1 + sum(g * q for g, q in zip(weights, row, strict=True) if g) for row in values)
    violation = max(worst, Fraction(0))
    if violation >= 1:
        return 1 << n
    return int((1 + sum(weights) - violation) // (1 - violation))


@cache
def _scaled_krawtchouk(n: int, k: int, i: int) -> Fraction:
    """K_k(i) / C(n, k) with K_k(i) = sum_j (-1)^j C(i, j) C(n - i, k - j)."""
    total = sum((-1) ** j * comb(i, j) * comb(n - i, k - j) for j in range(min(i, k) + 1))
    return Fraction(total, comb(n, k))
