"""Lower bounds on the largest cosine of C unit vectors of R^d."""

from itertools import count
from math import comb, cos, pi

from scipy.optimize import brentq
from scipy.special import roots_jacobi


def least_max_cosine(points: int, dimensions: int) -> float:
    """Return a lower bound on the largest cosine between C >= 2 unit vectors of R^d.

    Rankin: the simplex up to d + 1 points, the cross-polytope up to 2 d. Beyond, Levenshtein's bound, which known
    optima meet: 27 points in 6 dimensions (1/4), 56 in 7 (1/3), 240 in 8 (1/2).
    """
    if points <= dimensions + 1:
        return -1 / (points - 1)
    if dimensions <= 2:  # two ends; the regular polygon
        return 1.0 if dimensions == 1 else cos(2 * pi / points)
    return 0.0 if points <= 2 * dimensions else _levenshtein(points, dimensions)


def _levenshtein(points: int, dimensions: int) -> float:
    """Solve L_m(d, s) = C for the cosine s, with the m whose interval of cosines holds the solution."""
    low = 0.0  # where L_2 ends: 2 d points with cosine 0
    for degree in count(3):
        high = _end_of_interval(degree, dimensions)
        if _most_points(degree, dimensions, high) >= points:
            break
        low = high
    solution = brentq(lambda s: _most_points(degree, dimensions, s) - points, low, high, xtol=1e-13)
    return float(solution) - 1e-12  # on the safe side of rounding


def _most_points(degree: int, n: int, s: float) -> float:
    """Levenshtein's L_m(n, s), m = 2k - 1 or 2k: with largest cosine s there are at most this many points."""
    k = (degree + 1) // 2
    if degree % 2:
        p, q = _gegenbauer(k - 1, n, s), _gegenbauer(k, n, s)
        return comb(k + n - 3, k - 1) * ((2 * k + n - 3) / (n - 1) - (p - q) / ((1 - s) * q))
    p, q = _gegenbauer(k, n, s), _gegenbauer(k + 1, n, s)
    return comb(k + n - 2, k) * ((2 * k + n - 1) / (n - 1) - (1 + s) * (p - q) / ((1 - s) * (p + q)))


def _end_of_interval(degree: int, n: int) -> float:
    """L_m holds up to the largest root of the Jacobi polynomial adjacent to the Gegenbauer one of degree k."""
    a = (n - 3) / 2
    return float(roots_jacobi((degree + 1) // 2, a + 1, a + (degree + 1) % 2)[0].max())


def _gegenbauer(degree: int, n: int, s: float) -> float:
    """Gegenbauer polynomial of the sphere in R^n at s, scaled to 1 at s = 1, by its three-term recurrence."""
    before, now = 1.0, s
    for k in range(1, degree):
        before, now = now, ((2 * k + n - 2) * s * now - k * before) / (k + n - 2)
    return now if degree else 1.0
