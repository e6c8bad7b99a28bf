"""Asymmetric distance computation (ADC): distances that are sums of table entries.

A code consists of M subcodes of log2(k) bits. A query is a table (M, k), and its distance to a code is
sum_m table[m, subcode_m]. Weighted bits (k = 2), real values against one-hot blocks and the asymmetric distance of product
quantization have this form.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.codes.bits import Packed, check_packed, pack, unpack
from proxyhash.utils.errors import InputError
from proxyhash.utils.jit import jit

Subcodes = NDArray[np.uint8]
MAX_SUBCODE_BITS = 8  # 256 values, as in product quantization


def subcode_bits(bits: int) -> int:
    """Return the number of bits of a subcode: the largest divisor of `bits` up to 8.

    >>> [subcode_bits(bits) for bits in (12, 16, 17, 64)]
    [6, 8, 1, 8]
    """
    return max(each for each in range(1, MAX_SUBCODE_BITS + 1) if bits % each == 0)


def pack_subcodes(subcodes: NDArray[np.integer], each: int) -> Packed:
    """Return subcodes (N, M) of `each` bits as packed codes (N, ceil(M * each / 8))."""
    on = (subcodes[:, :, None] >> np.arange(each)) & 1
    return pack(on.reshape(len(subcodes), subcodes.shape[1] * each).astype(bool))


def unpack_subcodes(packed: Packed, count: int, each: int) -> Subcodes:
    """Return packed codes as subcodes (N, M), M = `count`."""
    if each == MAX_SUBCODE_BITS:
        return packed
    on = (unpack(packed, count * each) > 0).reshape(len(packed), count, each)
    subcodes: Subcodes = (on << np.arange(each)).sum(2).astype(np.uint8)
    return subcodes


def weighted_hamming_tables(queries: NDArray[np.bool_], weights: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the tables (Q, bits, 2) of the weighted Hamming distance: a bit that differs costs its weight."""
    cost = np.asarray(weights, np.float32)
    return np.stack([np.where(queries, cost, 0), np.where(queries, 0, cost)], axis=2).astype(np.float32)


def table_scorer(tables: ArrayLike, codes: ArrayLike) -> Callable[[slice], NDArray[np.float64]]:
    """Return a function from rows of `tables` (Q, M, k) to their distances (rows, N) to packed codes (N, bytes).

    Subcodes that fill bytes are looked up byte by byte: 64 weighted bits take 8 lookups instead of 64.
    """
    given, packed = _check_tables(tables, codes)
    count, each = given.shape[1], int(given.shape[2]).bit_length() - 1
    if MAX_SUBCODE_BITS % each == 0:
        return lambda rows: _sum_entries(_merge_to_byte_tables(given[rows], each), packed)
    subcodes = np.ascontiguousarray(unpack_subcodes(packed, count, each))
    return lambda rows: _sum_entries(given[rows].astype(np.float64), subcodes)


def _check_tables(tables: ArrayLike, codes: ArrayLike) -> tuple[NDArray[np.float32], Packed]:
    """Return contiguous tables and packed codes; shapes that do not fit are errors."""
    given, packed = np.asarray(tables, np.float32), check_packed("The database", codes)
    if (
        given.ndim != 3
        or given.shape[2] not in (2**each for each in range(1, MAX_SUBCODE_BITS + 1))
        or not np.isfinite(given).all()
    ):
        raise InputError(
            f"Tables must be finite, (queries, subcodes, values) with 2, 4, ... or 256 values, not {given.shape}."
        )
    bits = given.shape[1] * (int(given.shape[2]).bit_length() - 1)
    if (bits + 7) // 8 != packed.shape[1]:
        raise InputError(f"Tables for {bits} bits do not fit a database of {packed.shape[1]} bytes a code.")
    return np.ascontiguousarray(given), np.ascontiguousarray(packed)


@jit(nogil=True)
def _merge_to_byte_tables(tables: NDArray[np.float32], each: int) -> NDArray[np.float64]:
    """Return tables (Q, bytes, 256) of the sums over the subcodes of `each` bits in a byte, in double precision."""
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
def _sum_entries(tables: NDArray[np.float64], subcodes: Subcodes) -> NDArray[np.float64]:
    """Return sum_m tables[q, m, subcodes[n, m]] (Q, N)."""
    sums = np.zeros((len(tables), len(subcodes)))
    for query in range(len(tables)):
        table = tables[query]
        for item in range(len(subcodes)):
            total = 0.0
            for part in range(subcodes.shape[1]):
                total += table[part, subcodes[item, part]]
            sums[query, item] = total
    return sums
