"""Discrete cyclic coordinate descent: signs updated one bit at a time, each step exact."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


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


def discrete_objective(codes: Floats, target: Floats, coupling: Floats) -> float:
    """Return tr(B M B') - 2 tr(B Q'), what `cyclic_descent` lowers."""
    return float(np.sum((codes @ coupling) * codes) - 2 * np.sum(codes * target))
