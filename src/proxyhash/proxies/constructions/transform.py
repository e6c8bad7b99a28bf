"""The Walsh-Hadamard transform, compiled: the one computation behind all linear codes."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit


@jit(nogil=True)
def walsh_hadamard(values: NDArray[np.float64]) -> None:
    """Replace values f (2^k,) by F(c) = sum_x (-1)^(c . x) f(x), in place."""
    half = 1
    while half < len(values):
        for first in range(0, len(values), 2 * half):
            for low in range(first, first + half):
                a, b = values[low], values[low + half]
                values[low], values[low + half] = a + b, a - b
        half *= 2
