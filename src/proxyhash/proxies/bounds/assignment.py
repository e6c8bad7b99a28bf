"""Upper bounds on the gain sum_{i != j} s_ij cos(w_gamma_i, w_gamma_j) of an assignment over permutations gamma."""

import numpy as np
from scipy.linalg import eigh

from proxyhash.proxies.geometry import Floats, unit_rows

# Numbers of classes up to which pairs are sorted and eigenvalues are computed; with more, both take minutes.
_SORT_UP_TO = 4_096
_EIGENVALUES_UP_TO = 2_000


def largest_gain(similarity: Floats, weights: Floats) -> float:
    """Return an upper bound on the gain of assigning `weights` (C, d) to classes with `similarity` (C, C)."""
    unit = unit_rows(weights.astype(np.float64))
    bounds = [correlation_bound(similarity, unit)]
    if len(unit) <= _SORT_UP_TO:
        bounds.append(rearrangement_bound(similarity, unit))
    if len(unit) <= _EIGENVALUES_UP_TO:
        bounds.append(projection_bound(similarity, unit))
    return min(bounds)


def correlation_bound(similarity: Floats, unit: Floats) -> float:
    """Return the gain at correlation 1: mean part plus the product of the two spreads over pairs i != j."""
    pairs = len(unit) * (len(unit) - 1)
    s_sum, s_squares = _pair_sums(similarity)
    g_sum, g_squares = cosine_sums(unit)
    spread = (s_squares - s_sum**2 / pairs) * (g_squares - g_sum**2 / pairs)
    return float(s_sum * g_sum / pairs + np.sqrt(max(spread, 0.0)))


def rearrangement_bound(similarity: Floats, unit: Floats) -> float:
    """Return the gain if pairs of classes and pairs of proxies could be matched one by one, in sorted order."""
    above = np.triu_indices(len(unit), k=1)
    return float(2 * np.dot(np.sort(similarity[above]), np.sort((unit @ unit.T)[above])))


def projection_bound(similarity: Floats, unit: Floats) -> float:
    """Return the bound of Hadley, Rendl and Wolkowicz: eigenvalues are paired on the complement of the vector of ones.

    W W' has rank d, so only the d largest eigenvalues of the centered similarity meet one that is not zero.
    """
    n = len(unit)
    s = similarity.astype(np.float64)
    np.fill_diagonal(s, 0)
    rows = s.sum(axis=1)
    centered = s - rows / n - rows[:, None] / n + rows.sum() / n**2
    spectrum = np.linalg.eigvalsh((unit - unit.mean(axis=0)).T @ (unit - unit.mean(axis=0)))[::-1]
    kept = min(len(spectrum), n - 1)
    top = eigh(centered, eigvals_only=True, subset_by_index=[n - kept, n - 1])[::-1]
    reach = np.sort(rows) @ np.sort(unit @ unit.sum(axis=0))
    total = rows.sum() * np.square(unit.sum(axis=0)).sum()
    return float(top @ spectrum[:kept] + 2 * reach / n - total / n**2)


def cosine_sums(unit: Floats) -> tuple[float, float]:
    """Return the sums of w_i.w_j and of its square over i != j, from W'1 and W'W alone, for unit rows (C, d)."""
    total = float(np.square(unit.sum(axis=0)).sum()) - len(unit)
    squares = float(np.square(unit.T @ unit).sum()) - len(unit)
    return total, squares


def _pair_sums(similarity: Floats) -> tuple[float, float]:
    own = np.diag(similarity).astype(np.float64)
    total = similarity.sum(dtype=np.float64) - own.sum()
    return float(total), float(np.einsum("ij,ij->", similarity, similarity, dtype=np.float64) - own @ own)


def pearson(similarity: Floats, unit: Floats, gain: float) -> float:
    """Return the correlation of s_ij and w_i.w_j over i < j, given their `gain`; NaN where one of them is constant."""
    pairs = len(unit) * (len(unit) - 1)
    s_sum, s_squares = _pair_sums(similarity)
    g_sum, g_squares = cosine_sums(unit)
    spread = (s_squares - s_sum**2 / pairs) * (g_squares - g_sum**2 / pairs)
    constant = spread <= 1e-12 * s_squares * abs(g_squares)  # rounding may make both sides negative
    return float("nan") if constant else float((gain - s_sum * g_sum / pairs) / np.sqrt(spread))
