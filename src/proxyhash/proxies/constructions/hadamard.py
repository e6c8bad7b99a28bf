"""Codes from Hadamard matrices: the largest distance there is wherever Plotkin's bound is the one that counts."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from proxyhash.proxies.constructions.field import difference, prime_power, quadratic_character

Signs = NDArray[np.int8]


@cache
def hadamard(order: int) -> Signs | None:
    """Return a Hadamard matrix (order, order) of +1 and -1 with first row and column all +1, or None if none is known here.

    Known are 1, 2, Paley's two families, and products of known orders: up to 256 all but 92, 116, 156, 172, 184, 188, 232
    and 236.
    """
    if order in (1, 2):
        return np.array([[1, 1], [1, -1]], np.int8)[:order, :order]
    if order % 4:
        return None
    power_of_two = order & (order - 1) == 0  # Sylvester's matrix first: its rows are a linear code, which can be extended
    for construct in (_product, _paley_one, _paley_two) if power_of_two else (_paley_one, _paley_two, _product):
        if (found := construct(order)) is not None:
            return _normalized(found)
    return None


def _paley_one(order: int) -> Signs | None:
    """Order q + 1 with q = 3 mod 4 the size of a field."""
    q = order - 1
    if q % 4 != 3 or prime_power(q) is None:
        return None
    matrix = _bordered_character(q)
    matrix[1:, 0] = -1
    return (matrix + np.eye(order)).astype(np.int8)


def _paley_two(order: int) -> Signs | None:
    """Order 2 (q + 1) with q = 1 mod 4 the size of a field."""
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


def _normalized(matrix: Signs) -> Signs:
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
