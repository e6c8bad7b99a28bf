"""Extended BCH codes and related trace codes over GF(2^m), for many classes.

With exponents E, the words are c(x) = a_0 + sum_{e in E} Tr(a_e x^e) over all x of GF(2^m), so the column of x is a one
followed by the bits of each x^e. Without a_0 there is no leading one and x = 0 is left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from proxyhash.proxies.constructions.column_search import resize_columns
from proxyhash.proxies.constructions.field import generator_powers
from proxyhash.proxies.constructions.linear import Columns, linear_distance, shorten

_MAX_DIMENSIONS = 18  # with more, computing all weights of a code takes too long


@dataclass(frozen=True, eq=False)
class TraceCode:
    """A linear code: its columns, their number of bits k, and its minimal distance."""

    columns: Columns
    k: int
    distance: int


def trace_code_columns(k: int, bits: int, most: int) -> Columns | None:
    """Return columns (d,) of a [d, k] code made from the trace code of the largest guaranteed distance.

    A longer code is shortened while it has dimensions to spare, then cut, which costs at most 1 of distance for each bit; a
    shorter one gets more columns. A code that guarantees `most` ends the search. None for k that is too large.
    """
    best: tuple[int, TraceCode] | None = None
    for code in trace_codes(k, bits):
        spare = len(code.columns) - bits
        cut = max(0, spare - (code.k - k))
        guaranteed = code.distance - cut
        if best is None or guaranteed > best[0]:
            best = guaranteed, code
        if best[0] >= most:
            break
    return None if best is None else _fit_length(best[1], k, bits)


def _fit_length(code: TraceCode, k: int, bits: int) -> Columns:
    """Shorten while there are dimensions to spare, keep words whose last message bits are 0, and fit the length."""
    spare = max(0, len(code.columns) - bits)
    columns, _ = shorten(code.columns, code.k, min(spare, code.k - k))
    return resize_columns(columns & ((1 << k) - 1), k, bits)


def trace_codes(k: int, bits: int) -> Iterator[TraceCode]:
    """Yield trace codes of at least k dimensions and a length near `bits` that is a power of two, or one less."""
    for m in {max(2, bits.bit_length() - 1), max(2, (bits - 1).bit_length())}:
        spare = max(0, 2**m - bits)
        for exponents in _exponent_sets(m, k - 1, k + spare):
            for constant in (True, False):
                code = trace_code(m, exponents, constant)
                if code.k >= k:
                    yield code


@cache
def trace_code(m: int, exponents: tuple[int, ...], constant: bool = True) -> TraceCode:
    """Return the code with the given exponents, at most one from each cyclotomic coset modulo 2^m - 1."""
    powers = generator_powers(2, m)
    order = len(powers)
    columns, k = np.full(order + 1, int(constant)), int(constant)
    for exponent in exponents:
        values = np.append(0, powers[np.arange(order) * exponent % order])
        rank, coordinates = _coordinates(values)
        columns, k = columns | coordinates << k, k + rank
    columns = columns if constant else columns[1:]
    return TraceCode(columns, k, linear_distance(columns, k))


def _coordinates(values: Columns) -> tuple[int, Columns]:
    """Return the dimension of the span of `values` over GF(2), and their coordinates in a basis of it."""
    basis: list[int] = []
    for value in values.tolist():
        rest = value
        for vector in basis:
            rest = min(rest, rest ^ vector)
        if rest:
            basis.append(rest)
    pivots = [vector.bit_length() - 1 for vector in basis]
    left, coordinates = values.copy(), np.zeros_like(values)
    for place, (vector, pivot) in enumerate(zip(basis, pivots, strict=True)):
        has = left >> pivot & 1
        left ^= has * vector
        coordinates |= has << place
    return len(basis), coordinates


def _exponent_sets(m: int, at_least: int, enough: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of coset leaders with 1 whose cosets hold `at_least` exponents; sets with `enough` do not grow."""
    cosets = cyclotomic_cosets(m)

    def grow(chosen: tuple[int, ...], size: int) -> Iterator[tuple[int, ...]]:
        if size >= at_least:
            yield chosen
        for leader, coset in cosets.items():
            if size < enough and leader > chosen[-1] and size + len(coset) < _MAX_DIMENSIONS:
                yield from grow((*chosen, leader), size + len(coset))

    if m < _MAX_DIMENSIONS:
        yield from grow((1,), m)


@cache
def cyclotomic_cosets(m: int) -> dict[int, frozenset[int]]:
    """Return the sets {e, 2 e, 4 e, ...} modulo 2^m - 1 by their least element, without {0}."""
    order = 2**m - 1
    cosets: dict[int, frozenset[int]] = {}
    for exponent in range(1, order):
        coset = frozenset(exponent * 2**i % order for i in range(m))
        cosets.setdefault(min(coset), coset)
    return cosets
