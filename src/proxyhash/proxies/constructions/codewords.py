"""Minimal distance of code words, and changes that keep it: choice of words, balance of bits, permutations."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words, pack, to_words
from proxyhash.codes.kernels import popcount
from proxyhash.proxies.constructions.hadamard import Signs
from proxyhash.proxies.geometry import Floats
from proxyhash.utils.jit import jit

_ROUNDS = 400
_SWAPS_A_ROUND = 128


def choose_balanced_rows(words: Signs, count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` rows of `words` (M, d) whose bits are nearly as often +1 as -1.

    From a random choice, the best of some random exchanges is applied while it lowers the sum of fourth powers of the sums
    of the bits, which the least balanced bits dominate.
    """
    order = random.permutation(len(words))
    chosen, left = order[:count], order[count:]
    sums = words[chosen].sum(axis=0, dtype=np.int64)
    for _ in range(_ROUNDS if len(left) else 0):
        if np.abs(sums).max() <= count % 2:
            break
        out, new = random.integers(count, size=_SWAPS_A_ROUND), random.integers(len(left), size=_SWAPS_A_ROUND)
        after = sums - words[chosen[out]] + words[left[new]]
        cost = np.square(np.square(after)).sum(axis=1)
        best = int(cost.argmin())
        if cost[best] < np.square(np.square(sums)).sum():
            sums = after[best]
            chosen[out[best]], left[new[best]] = left[new[best]], chosen[out[best]]
    return chosen


def bit_imbalance(words: Signs) -> float:
    """Return the largest |mean| of a bit of `words` (C, d): 0 is balanced, 1 constant."""
    return float(np.abs(words.mean(axis=0, dtype=np.float64)).max())


def balance_bits(words: Signs, reached: int) -> Signs:
    """Flip bits of words (C, d) to balance the bits, keeping a minimal distance of `reached`."""
    words = words.copy()
    distance = (words.shape[1] - words.astype(np.int64) @ words.T) // 2
    for k in np.argsort(-np.abs(words.sum(axis=0)), kind="stable"):
        for i in range(len(words)):
            if words[i, k] * words[:, k].sum() < 2:  # a flip would not improve the balance
                continue
            after = distance[i] + words[i, k] * words[:, k]
            after[i] = reached
            if after.min() >= reached:
                words[i, k] *= -1
                distance[i], distance[:, i] = after, after
    return words


def shuffle_code(words: Signs, random: np.random.Generator) -> Signs:
    """Permute the rows and the bits of `words` (C, d) and flip some bits, which keeps all distances."""
    classes, bits = words.shape
    flips = np.where(random.random(bits) < 0.5, -1, 1).astype(np.int8)
    turned_words: Signs = words[random.permutation(classes)][:, random.permutation(bits)] * flips
    return turned_words


def minimal_distance(signs: Floats | NDArray[np.int8]) -> int:
    """Return the smallest Hamming distance between two rows of +1 and -1 (C, d), C >= 2."""
    return int(_smallest(to_words(pack(signs > 0))))


@jit(nogil=True)
def _smallest(database: Words) -> np.int64:
    parts, items = database.shape
    smallest = np.int64(64 * parts)
    for i in range(items):
        for j in range(i):
            distance = np.int64(0)
            for part in range(parts):
                distance += np.int64(popcount(database[part, i] ^ database[part, j]))
            smallest = min(smallest, distance)
    return smallest
