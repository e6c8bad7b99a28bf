"""Discrete coordinate descent: codes updated one bit at a time, each step exact."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def cyclic_descent(codes: Floats, target: Floats, coupling: Floats, sweeps: int) -> Floats:
    """Lower tr(B M B') - 2 tr(B Q') over signs B (N, bits), for `target` Q (N, bits) and a symmetric `coupling` M.

    With the other bits held, the best k-th bit is sign(q_k - sum_{j != k} M_kj b_j): no step can raise the objective. It
    ends early when a sweep changes nothing.
    """
    signs = codes.copy()
    for _ in range(sweeps):
        changed = False
        for bit in range(signs.shape[1]):
            rest = signs @ coupling[:, bit] - signs[:, bit] * coupling[bit, bit]
            better = np.where(target[:, bit] - rest >= 0, np.float32(1), np.float32(-1))
            changed |= bool((better != signs[:, bit]).any())
            signs[:, bit] = better
        if not changed:
            break
    return signs


def improve_bit(bit: Doubles, residual: Doubles, counts: Doubles, sweeps: int = 10) -> Doubles:
    """Return signs x (U,) that raise sum_cd n_c n_d R_cd x_c x_d, for a symmetric `residual` R and `counts` n.

    With the others held, the best x_c is sign(sum_{d != c} n_d R_cd x_d): no step lowers the sum, and so none raises
    sum n_c n_d (R_cd - x_c x_d)^2. It ends when a sweep changes nothing.
    """
    x = bit.copy()
    weighted = residual * counts
    for _ in range(sweeps):
        changed = False
        for entry in range(len(x)):
            pull = weighted[entry] @ x - weighted[entry, entry] * x[entry]
            better = x[entry] if pull == 0 else np.sign(pull)
            changed |= better != x[entry]
            x[entry] = better
        if not changed:
            break
    return x
