"""Linear codes as columns: a [d, k] code is d vectors of GF(2)^k, one for each bit, as integers of k bits.

Bit i of the word of a message x is the parity of x & column_i. All 2^k weights are one Walsh-Hadamard transform of the
histogram of columns, so the minimal distance needs no pairs of words.
"""

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit

Columns = NDArray[np.int64]
Words = NDArray[np.int8]


def word_weights(columns: Columns, k: int) -> NDArray[np.int64]:
    """Return the weight of the word of every message (2^k,)."""
    spectrum = np.bincount(columns, minlength=1 << k).astype(np.float64)
    walsh_hadamard(spectrum)
    counts: NDArray[np.int64] = (len(columns) - np.rint(spectrum).astype(np.int64)) // 2
    return counts


def linear_distance(columns: Columns, k: int) -> int:
    """Return the minimal distance of the code, the smallest nonzero weight."""
    return int(word_weights(columns, k)[1:].min())


def encode_messages(columns: Columns, messages: NDArray[np.int64]) -> Words:
    """Return the words (M, d) of `messages` (M,) as +1 and -1, -1 for a bit that is set."""
    parity = np.bitwise_count(messages[:, None] & columns) & 1
    signs: Words = 1 - 2 * parity.astype(np.int8)
    return signs


def add_parity(columns: Columns) -> Columns:
    """Append the parity bit, which makes every weight even and an odd distance one larger.

    If all weights are even already, the parity bit would be constant, and a column is repeated instead.
    """
    parity = int(np.bitwise_xor.reduce(columns))
    return np.append(columns, parity or columns[0])


def shorten(columns: Columns, k: int, count: int) -> tuple[Columns, int]:
    """Keep the words that are 0 in `count` bits and drop these bits: [d, k] becomes at least [d - count, k - count].

    Of two messages that differ in the pivot of a dropped column one is kept: message bit `pivot` becomes the sum of the
    column's other message bits, that is every column with this bit set gets the dropped column added.
    """
    for _ in range(count):
        first, columns = columns[0], columns[1:]
        if first == 0:
            continue
        pivot = int(first).bit_length() - 1
        columns = np.where(columns >> pivot & 1, columns ^ first, columns)
        columns = (columns & ((1 << pivot) - 1)) | (columns >> (pivot + 1) << pivot)
        k -= 1
    return columns, k


def griesmer_bound(bits: int, k: int) -> int:
    """Return the largest D with sum_{i < k} ceil(D / 2^i) <= `bits`: no linear [bits, k] code has a larger distance."""
    found = bits
    while sum(-(-found >> i) for i in range(k)) > bits:
        found -= 1
    return found


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
