"""Conversion between codes and bit planes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words
from proxyhash.utils.jit import jit

CodeRows = NDArray[Any]
"""Codes (N, W) of unsigned integers of 8, 16, 32 or 64 bits, the lowest bits of a code first."""


def code_rows(packed: Packed) -> CodeRows:
    """Return packed codes (N, bytes) as integers (N, W), without a copy if their width allows it."""
    items, width = packed.shape
    size = width if width in (1, 2, 4) else 8
    if width % size:
        padded = np.zeros((items, width + -width % size), np.uint8)
        padded[:, :width] = packed
        packed = padded
    return np.ascontiguousarray(packed).view(f"<u{size}")


@jit(nogil=True)
def slice_rows(rows: CodeRows, first: int, out: Words) -> None:
    """Write to `out` (B, P, L) the bit planes of codes from row `first` of `rows` (N, W) on, padded with zeros."""
    lanes, bits = out.shape[2], 8 * rows.itemsize
    square = np.empty((64, lanes), np.uint64)
    for block in range(out.shape[0]):
        begin = first + 64 * lanes * block
        for part in range(-(-out.shape[1] // bits)):
            fill_square(rows, begin, part, square)
            transpose_squares(square)
            for bit in range(min(bits, out.shape[1] - bits * part)):
                for lane in range(lanes):
                    out[block, bits * part + bit, lane] = square[bit, lane]


@jit(nogil=True)
def fill_square(rows: CodeRows, first: int, part: int, square: Words) -> None:
    """Write word `part` of the codes from `first` on to `square` (64, L): row i of column w is code 64 w + i."""
    lanes = square.shape[1]
    if first + 64 * lanes <= len(rows):
        for word in range(lanes):
            for i in range(64):
                square[i, word] = rows[first + 64 * word + i, part]
        return
    square[:] = 0
    for word in range(lanes):
        for i in range(min(64, len(rows) - first - 64 * word)):
            square[i, word] = rows[first + 64 * word + i, part]


@jit(nogil=True)
def slice_block(row: Words, first: int, out: Words) -> None:
    """Write to `out` (64, L) the bit planes of words from `first` of `row` (N,) on, padded with zeros."""
    fill_square(row.reshape((len(row), 1)), first, 0, out)
    transpose_squares(out)


@jit(nogil=True)
def join_block(planes: Words, scratch: Words, out: Words) -> None:
    """Write to `out` (64 L,) the words with bit planes (64, L), the inverse of `slice_block`. `scratch` is (64, L)."""
    scratch[:] = planes
    transpose_squares(scratch)
    for word in range(planes.shape[1]):
        for i in range(64):
            out[64 * word + i] = scratch[i, word]


@jit(nogil=True)
def transpose_squares(square: Words) -> None:
    """Transpose L squares of 64 words of 64 bits in place; column w of (64, L) is a square, so that loops are long.

    Off-diagonal halves are swapped, then those of each quarter, and so on down to single bits.
    """
    lanes, flat = square.shape[1], square.reshape(square.size)
    size, low_half = 32, np.uint64(0xFFFFFFFF)
    while size:
        shift, half = np.uint64(size), lanes * size
        for corner in range(0, 64 * lanes, 2 * half):
            above, below = flat[corner : corner + half], flat[corner + half : corner + 2 * half]
            for i in range(half):
                swapped = ((above[i] >> shift) ^ below[i]) & low_half
                above[i] ^= swapped << shift
                below[i] ^= swapped
        size >>= 1
        low_half ^= low_half << np.uint64(size)


@jit(nogil=True)
def join_rows(planes: Words, slots: NDArray[np.int64], out: Words) -> None:
    """Write to `out` (n, W) the codes in some `slots` (n,) of planes (B, P, L)."""
    lanes = planes.shape[2]
    for row in range(len(slots)):
        block, lane = slots[row] // (64 * lanes), slots[row] % (64 * lanes)
        shift = np.uint64(lane % 64)
        for part in range(out.shape[1]):
            word = np.uint64(0)
            for bit in range(min(64, planes.shape[1] - 64 * part)):
                word |= (planes[block, 64 * part + bit, lane // 64] >> shift & np.uint64(1)) << np.uint64(bit)
            out[row, part] = word


@jit(nogil=True)
def join_all(planes: Words, first: int, out: Words) -> None:
    """Write to `out` (W, n) the codes of planes (B, P, L) from block `first` on."""
    lanes = planes.shape[2]
    square = np.empty((64, lanes), np.uint64)
    for begin in range(0, out.shape[1], 64 * lanes):
        block, count = first + begin // (64 * lanes), min(64 * lanes, out.shape[1] - begin)
        for part in range(len(out)):
            held = min(64, planes.shape[1] - 64 * part)
            square[held:] = 0
            square[:held] = planes[block, 64 * part : 64 * part + held]
            transpose_squares(square)
            for item in range(count):
                out[part, begin + item] = square[item % 64, item // 64]
