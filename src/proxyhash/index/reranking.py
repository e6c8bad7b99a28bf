"""Candidates of equal distance, told apart by how sure the query is of each bit."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Words


def asymmetric_distances(nu: NDArray[np.float32], words: Words) -> NDArray[np.float32]:
    """Return the distances (Q, k) of real-valued queries `nu` (Q, bits) to the stored codes `words` (Q, k, W).

    A bit that differs costs |nu| instead of 1: sum over i of |nu_i| [b_i != sgn nu_i] = (sum |nu_i| - nu.b) / 2. It orders
    as the inner product nu.b does, and is in bits: a query that is sure of everything has its Hamming distances.
    """
    bits = nu.shape[1]
    on = np.unpackbits(words.view(np.uint8), axis=2, count=bits, bitorder="little")
    stored = on.astype(np.float32) * 2 - 1
    distances: NDArray[np.float32] = (np.abs(nu).sum(1)[:, None] - np.einsum("qkb,qb->qk", stored, nu)) / 2
    np.maximum(distances, 0, out=distances)  # rounding may leave a zero just below
    return distances


def reranked(distances: NDArray[np.float32], keys: Words) -> NDArray[np.int64]:
    """Return the order (Q, k) of candidates by asymmetric distance; ties go by the `keys`, Hamming distance and position."""
    return np.stack([np.lexsort((key, row)) for key, row in zip(keys, np.round(distances, 6), strict=True)])
