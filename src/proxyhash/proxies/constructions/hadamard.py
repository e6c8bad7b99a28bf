"""Codes from Hadamard matrices, including the codes of Levenshtein that meet the Plotkin bound."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.constructions.field import difference, prime_power, quadratic_character

Signs = NDArray[np.int8]


@cache
def hadamard(order: int) -> Signs | None:
    """Return a Hadamard matrix (order, order) with first row and column all +1, or None if no construction applies.

    Constructions are orders 1 and 2, both Paley families, and products: all orders up to 256 but 92, 116, 156, 172, 184,
    188, 232 and 236.
    """
    if order in (1, 2):
        return np.array([[1, 1], [1, -1]], np.int8)[:order, :order]
    if order % 4:
        return None
    power_of_two = (
        order & (order - 1) == 0
    )  # Sylvester's matrix is preferred: its rows are a linear code, which can be extended
    for construct in (_product, _paley_one, _paley_two) if power_of_two else (_paley_one, _paley_two, _product):
        if (found := construct(order)) is not None:
            return _normalize(found)
    return None


def _paley_one(order: int) -> Signs | None:
    """Return a matrix of order q + 1, with q = 3 mod 4 the size of a field."""
    q = order - 1
    if q % 4 != 3 or prime_power(q) is None:
        return None
    matrix = _bordered_character(q)
    matrix[1:, 0] = -1
    return (matrix + np.eye(order)).astype(np.int8)


def _paley_two(order: int) -> Signs | None:
    """Return a matrix of order 2 (q + 1), with q = 1 mod 4 the size of a field."""
    q = order // 2 - 1
    if q % 4 != 1 or prime_power(q) is None:
        return None
    symmetric = _bordered_character(q)
    identity = np.eye(q + 1)
    return (np.kron(symmetric, [[1, 1], [1, -1]]) + np.kron(identity, [[1, -1], [-1, -1]])).astype(np.int8)


def _bordered_character(q: int) -> NDArray[np.int64]:
    """Return the matrix chi(a - b) over all elements a, b of the field, with a border of ones and 0 in the corner."""
    p, m = prime_power(q) or (q, 1)
    elements = np.arange(q)
    matrix = np.ones((q + 1, q + 1), np.int64)
    matrix[0, 0] = 0
    matrix[1:, 1:] = quadratic_character(p, m)[difference(elements[:, None], elements[None, :], p, m)]
    return matrix


def _product(order: int) -> Signs | None:
    """Kronecker product of two smaller ones; Sylvester's matrices are the powers of the order 2."""
    for factor in range(2, order // 2 + 1):
        if order % factor == 0:
            left, right = hadamard(factor), hadamard(order // factor)
            if left is not None and right is not None:
                return np.kron(left, right)
    return None


def _normalize(matrix: Signs) -> Signs:
    """Flip rows and columns so that the first of each is all +1."""
    matrix = matrix * matrix[0]
    return matrix * matrix[:, :1]


def simplex_code(order: int) -> Signs | None:
    """(n - 1 bits, n words, distance n / 2): the matrix without its constant column."""
    matrix = hadamard(order)
    return None if matrix is None else matrix[:, 1:]


def shortened_code(order: int) -> Signs | None:
    """(n - 2 bits, n / 2 words, distance n / 2): the rows that agree in one more column, without it."""
    matrix = hadamard(order)
    return None if matrix is None or order < 4 else matrix[matrix[:, 1] == 1, 2:]


def biorthogonal_code(order: int) -> Signs | None:
    """(n bits, 2 n words, distance n / 2): the rows and their complements."""
    matrix = hadamard(order)
    return None if matrix is None else np.concatenate((matrix, -matrix))


def plotkin_codes(classes: int, bits: int) -> Iterator[list[Signs]]:
    """Yield codes of at least C words and d bits, the largest distance first, each as blocks of columns side by side.

    Any C words of a block have its distance, so words may be chosen independently in each block. A code of odd distance
    is a code of the next even distance and one more bit, without its last bit.
    """
    for distance in range(bits, 0, -1):
        length, even = (bits, distance) if distance % 2 == 0 else (bits + 1, distance + 1)
        if 2 * even <= length:
            return
        words = 2 * (even // (2 * even - length))
        blocks = levenshtein_blocks(words, length, even) if words >= classes else None
        if blocks:
            yield without_last_bits(blocks, length - bits)


def biorthogonal_codes(classes: int, bits: int) -> Iterator[Signs]:
    """Yield Hadamard codes of at least C words cut to d bits, the largest distance first; each cut bit costs 1."""
    orders = [order for order in (1, 2, *range(4, bits + bits // 4 + 4, 4)) if bits <= order and 2 * order >= classes]
    for order in sorted(orders):
        code = biorthogonal_code(order)
        if code is not None:
            yield code[:, :bits]


def levenshtein_blocks(words: int, length: int, distance: int) -> list[Signs] | None:
    """Return a code of 2 k words that meets Plotkin's bound for even `distance` > `length` / 2, or None.

    With a = d (2 k + 1) - n (k + 1) and b = k n - d (2 k - 1), n = (2 k - 1) a + (2 k + 1) b and d = k a + (k + 1) b:
    shortened Hadamard codes of orders 4 k and 4 k + 4 supply two units of a or of b each, simplex codes of half the order
    one.
    """
    k = words // 2
    a, b = distance * (2 * k + 1) - length * (k + 1), k * length - distance * (2 * k - 1)
    blocks = [*_units(a, k), *_units(b, k + 1)]
    return None if any(block is None for block in blocks) else [block for block in blocks if block is not None]


def _units(count: int, half: int) -> list[Signs | None]:
    """Return codes of at least 2 `half` words with length `count` (2 half - 1) and distance `count` half in all."""
    pairs, single = divmod(count, 2)
    if half % 2 == 0 or half == 1:  # a simplex code of order 2 half may exist, and gives one unit
        return [simplex_code(2 * half)] * count
    return [shortened_code(4 * half)] * pairs + [None] * single


def without_last_bits(blocks: list[Signs], bits: int) -> list[Signs]:
    """Cut `bits` columns, 0 or 1, from the last block."""
    kept = [*blocks[:-1], blocks[-1][:, : blocks[-1].shape[1] - bits]]
    return [block for block in kept if block.shape[1]]
