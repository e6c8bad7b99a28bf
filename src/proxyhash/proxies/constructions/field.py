"""Finite fields of q = p^m elements as tables, for Paley matrices and trace codes.

The digits of an element's number in base p are its coefficients, the constant one lowest.
"""

from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[np.int64]


def prime_power(size: int) -> tuple[int, int] | None:
    """Return p and m with p^m = `size`, or None if there is no field of this size."""
    p = next((divisor for divisor in range(2, size + 1) if size % divisor == 0), 0)
    m = 0
    while p and p**m < size:
        m += 1
    return (p, m) if p and p**m == size else None


@cache
def generator_powers(p: int, m: int) -> Elements:
    """Return the powers g^0, ..., g^(q - 2) of a generator g of GF(p^m) (q - 1,): all elements but 0."""
    for coefficients in product(
        range(1, p), *[range(p)] * (m - 1)
    ):  # the constant coefficient of a primitive polynomial is not 0
        powers = _powers_of_x(p, coefficients)
        if len(powers) == p**m - 1:
            return np.array(powers, np.int64)
    raise AssertionError("Every finite field has a generator.")


def _powers_of_x(p: int, reduction: tuple[int, ...]) -> list[int]:
    """Multiply 1 by x until 1 returns, where `reduction` (m,) are the coefficients of x^m.

    For m = 1, x is the number reduction[0] itself.
    """
    one = (1,) + (0,) * (len(reduction) - 1)
    digits = one
    powers: list[int] = []
    while not powers or digits != one:
        powers.append(sum(digit * p**place for place, digit in enumerate(digits)))
        shifted = (0, *digits[:-1])
        digits = tuple((a + digits[-1] * b) % p for a, b in zip(shifted, reduction, strict=True))
    return powers


def difference(a: Elements, b: Elements, p: int, m: int) -> Elements:
    """Return a - b in GF(p^m), digit by digit."""
    place = p ** np.arange(m)
    digits = (a[..., None] // place - b[..., None] // place) % p
    numbers: Elements = digits @ place
    return numbers


def quadratic_character(p: int, m: int) -> Elements:
    """Return chi (q,) of GF(p^m): 0 for 0, 1 for squares, -1 for the others."""
    chi = np.full(p**m, -1, np.int64)
    chi[0] = 0
    chi[generator_powers(p, m)[::2]] = 1
    return chi
