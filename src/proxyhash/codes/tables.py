"""Distances that are sums of table entries: how codes are searched if not by Hamming distance.

A code is M symbols of log2(k) bits. A query is a table (M, k), and its distance to a code is sum_m table[m, symbol_m]: bits
with weights (k = 2), real values against one-hot blocks, and the asymmetric distance of a product quantiser are all of this
form.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.bits import Packed, checked_packed, pack, unpack
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import jit

Symbols = NDArray[np.uint8]
MOST_BITS = 8  # of a symbol: 256 values, as product quantisers have


def symbol_bits(bits: int) -> int:
    """Return how many bits a symbol of a code has: as many as divide the code, at most 8.

    >>> [symbol_bits(bits) for bits in (12, 16, 17, 64)]
    [6, 8, 1, 8]
    """
    return max(each for each in range(1, MOST_BITS + 1) if bits % each == 0)


def pack_symbols(symbols: NDArray[np.integer], each: int) -> Packed:
    """Return symbols (N, M) of `each` bits as packed codes (N, ceil(M * each / 8))."""
    on = (symbols[:, :, None] >> np.arange(each)) & 1
    return pack(on.reshape(len(symbols), symbols.shape[1] * each).astype(bool))


def unpack_symbols(packed: Packed, count: int, each: int) -> Symbols:
    """Return packed codes as symbols (N, M), M = `count`."""
    if each == MOST_BITS:
        return packed
    on = (unpack(packed, count * each) > 0).reshape(len(packed), count, each)
    symbols: Symbols = (on << np.arange(each)).sum(2).astype(np.uint8)
    return symbols


def bit_tables(queries: NDArray[np.bool_], weights: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the tables (Q, bits, 2) of the weighted Hamming distance: a bit that differs costs its weight."""
    cost = np.asarray(weights, np.float32)
    return np.stack([np.where(queries, cost, 0), np.where(queries, 0, cost)], axis=2).astype(np.float32)


def table_distances(tables: ArrayLike, codes: ArrayLike) -> NDArray[np.float64]:
    """Return the distances (Q, N) of tables (Q, M, k) to packed codes (N, bytes)."""
    return distances_by_tables(tables, codes)[1](slice(None))


def distances_by_tables(tables: ArrayLike, codes: ArrayLike) -> tuple[int, Callable[[slice], NDArray[np.float64]]]:
    """Return how many tables (Q, M, k) there are, and what gives the distances (rows, N) of some to packed codes (N, bytes).

    Symbols that fill bytes are looked up by bytes: 64 bits with a weight each are 8 entries, not 64.
    """
    given, packed = _checked(tables, codes)
    count, each = given.shape[1], int(given.shape[2]).bit_length() - 1
    if MOST_BITS % each == 0:
        return len(given), lambda rows: _sum_entries(_tables_of_bytes(given[rows], each), packed)
    symbols = np.ascontiguousarray(unpack_symbols(packed, count, each))
    return len(given), lambda rows: _sum_entries(given[rows].astype(np.float64), symbols)


def _checked(tables: ArrayLike, codes: ArrayLike) -> tuple[NDArray[np.float32], Packed]:
    """Return tables and packed codes, or say why they do not fit."""
    given, packed = np.asarray(tables, np.float32), checked_packed("The database", codes)
    if (
        given.ndim != 3
        or given.shape[2] not in (2**each for each in range(1, MOST_BITS + 1))
        or not np.isfinite(given).all()
    ):
        raise InputError(
            f"Tables must be finite, (queries, symbols, values) with 2, 4, ... or 256 values, not {given.shape}."
        )
    bits = given.shape[1] * (int(given.shape[2]).bit_length() - 1)
    if (bits + 7) // 8 != packed.shape[1]:
        raise InputError(f"Tables for {bits} bits do not fit a database of {packed.shape[1]} bytes a code.")
    return np.ascontiguousarray(given), np.ascontiguousarray(packed)


@jit(nogil=True)
def _tables_of_bytes(tables: NDArray[np.float32], each: int) -> NDArray[np.float64]:
    """Return tables (Q, bytes, 256) with the sums of the symbols of `each` bits that a byte holds, in double precision."""
    queries, count, values = tables.shape
    together = 8 // each
    sums = np.zeros((queries, (count + together - 1) // together, 256))
    for query in range(queries):
        for symbol in range(count):
            shift = symbol % together * each
            for byte in range(256):
                sums[query, symbol // together, byte] += tables[query, symbol, (byte >> shift) & (values - 1)]
    return sums


@jit(nogil=True)
def _sum_entries(tables: NDArray[np.float64], symbols: Symbols) -> NDArray[np.float64]:
    """Return sum_m tables[q, m, symbols[n, m]] (Q, N)."""
    sums = np.zeros((len(tables), len(symbols)))
    for query in range(len(tables)):
        table = tables[query]
        for item in range(len(symbols)):
            total = 0.0
            for part in range(symbols.shape[1]):
                total += table[part, symbols[item, part]]
            sums[query, item] = total
    return sums
