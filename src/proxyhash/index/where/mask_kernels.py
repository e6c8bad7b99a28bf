"""Kernels over masks of rows, each for one thread without the interpreter's lock."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit


@jit(nogil=True)
def list_true(mask: NDArray[np.bool_], out: NDArray[np.int64]) -> int:
    """Write the numbers of the rows of `mask` (n,) that are True to `out` (n + 1,), and return how many there are.

    Eight rows are tested at a time: NumPy's `flatnonzero` holds the lock, and tests each row.
    """
    count, whole = 0, len(mask) // 8 * 8
    words = mask[:whole].view(np.uint64)
    for word in range(len(words)):
        if words[word]:
            for row in range(8 * word, 8 * word + 8):
                out[count] = row
                count += mask[row]
    for row in range(whole, len(mask)):
        out[count] = row
        count += mask[row]
    return count
