"""The minimal distance of any set of words, by looking at every pair."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words, pack
from proxyhash.codes.bits import words as as_words
from proxyhash.codes.kernels import popcount
from proxyhash.proxies.geometry import Floats
from proxyhash.utils.jit import jit


def minimal_distance(signs: Floats | NDArray[np.int8]) -> int:
    """Return the smallest Hamming distance between two rows of +1 and -1 (C, d), C >= 2."""
    return int(_smallest(as_words(pack(signs > 0))))


@jit(nogil=True)
def _smallest(database: Words) -> np.int64:
    parts, items = database.shape
    smallest = np.int64(64 * parts)
    for i in range(items):
        for j in range(i):
            apart = np.int64(0)
            for part in range(parts):
                apart += np.int64(popcount(database[part, i] ^ database[part, j]))
            smallest = min(smallest, apart)
    return smallest
