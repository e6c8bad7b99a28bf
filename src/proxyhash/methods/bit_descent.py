"""Codes for given similarities: signs H that lower ||K S - H H'||^2, one entry at a time, each step exact."""

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


def improve_bit(bit: Doubles, residual: Doubles, counts: Doubles, sweeps: int = 10) -> Doubles:
    """Return signs x (U,) that raise sum_cd n_c n_d R_cd x_c x_d, for a symmetric `residual` R and `counts` n.

    With the others held, the best x_c is sign(sum_{d != c} n_d R_cd x_d): no step lowers the sum, and so none raises
    sum n_c n_d (R_cd - x_c x_d)^2. It ends when a sweep changes nothing.
    """
    x = bit.copy()
    weighted = residual * counts
    for _ in range(sweeps):
        changed = False
        for place in range(len(x)):
            pull = weighted[place] @ x - weighted[place, place] * x[place]
            better = x[place] if pull == 0 else np.sign(pull)
            changed |= better != x[place]
            x[place] = better
        if not changed:
            break
    return x


def similarity_error(codes: Doubles, similarity: Doubles, counts: Doubles) -> float:
    """Return sum_cd n_c n_d (S_cd - h_c.h_d / K)^2, for codes (U, K)."""
    gaps = np.square(similarity - codes @ codes.T / codes.shape[1])
    return float(counts @ gaps @ counts)
