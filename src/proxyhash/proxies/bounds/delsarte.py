"""Delsarte's linear programming bound, solved in floating point and then proved in rational arithmetic."""

from fractions import Fraction
from functools import cache
from math import comb

import numpy as np
from scipy.optimize import linprog

_STEPS_PER_UNIT = 2**40  # the solver's solution is rounded to this grid before it is proved


@cache
def delsarte_bound(n: int, d: int) -> int:
    """Return an upper bound on A(n, d) for even d; never below the true value, whatever the solver's rounding.

    Dual program, with Q_k(i) = K_k(i) / C(n, k) the Krawtchouk polynomials scaled to 1 at 0: any g_k >= 0 with
    f(i) = 1 + sum_k g_k Q_k(i) <= 0 at every distance i that may occur gives A(n, d) <= f(0) = 1 + sum_k g_k.
    With d even the code may be taken even, so i runs over even numbers, and k up to n / 2 suffices.
    """
    values = [[_scaled_krawtchouk(n, k, i) for k in range(1, n // 2 + 1)] for i in range(d, n + 1, 2)]
    table = np.array(values, dtype=float)
    found = linprog(np.ones(table.shape[1]), A_ub=table, b_ub=-np.ones(len(table)), method="highs")
    if found.x is None:
        return 1 << n
    return _proved([Fraction(max(0, round(g * _STEPS_PER_UNIT)), _STEPS_PER_UNIT) for g in found.x], values, n)


def _proved(weights: list[Fraction], values: list[list[Fraction]], n: int) -> int:
    """Turn a nearly feasible solution into a bound that holds: lower f by its largest violation v, f(0) / (1 - v)."""
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
