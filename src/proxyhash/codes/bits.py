"""Packed binary codes: bit k of a code is bit k % 8, counted from the lowest, of byte k // 8."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

MAX_BITS = 4096
_CACHE_LINE = 64  # bytes

Packed = NDArray[np.uint8]
Words = NDArray[np.uint64]


def pack(codes: ArrayLike) -> Packed:
    """Pack codes into bytes.

    Booleans, and numbers that are all 0 or 1, are bits; other numbers are taken by their sign, with sgn(0) = +1. Outputs of
    a network should pass through `binarize` first, which never takes a matrix of zeros and ones for bits.

    Parameters
    ----------
    codes
        Matrix (N, bits) of booleans or numbers.

    Returns
    -------
    ndarray of uint8
        Packed codes (N, ceil(bits / 8)); unused bits of the last byte are 0.

    Raises
    ------
    InputError
        If `codes` is not a matrix of finite numbers with 1 to 4096 columns.

    Examples
    --------
    >>> pack([[1, -1, -1, 1]]).tolist(), pack([[True, False, False, True]]).tolist()
    ([[9]], [[9]])
    """
    c = np.asarray(codes)
    if c.ndim != 2 or c.dtype.kind not in "biuf":
        raise InputError(f"Codes must be a matrix (items, bits) of numbers or booleans, not {c.dtype} of shape {c.shape}.")
    if not 1 <= c.shape[1] <= MAX_BITS:
        raise InputError(f"Codes must have 1 to {MAX_BITS} bits, not {c.shape[1]}.")
    if c.dtype.kind == "f" and not np.isfinite(c).all():
        raise InputError("Codes hold a value that is not finite.")
    on = c.astype(bool) if c.dtype == bool or ((c == 0) | (c == 1)).all() else c >= 0
    return np.packbits(on, axis=1, bitorder="little")


def unpack(packed: ArrayLike, bits: int) -> NDArray[np.int8]:
    """Unpack codes to +1 and -1.

    Parameters
    ----------
    packed
        Packed codes (N, ceil(bits / 8)).
    bits
        Number of bits of a code.

    Returns
    -------
    ndarray of int8
        Signs (N, bits).

    Raises
    ------
    InputError
        If codes of so many bits do not have so many bytes.

    Examples
    --------
    >>> unpack(pack([[1, -1, -1, 1]]), 4).tolist()
    [[1, -1, -1, 1]]
    """
    bits = check_int("bits", bits, 1)
    p = check_packed("Codes", packed)
    if p.shape[1] != (bits + 7) // 8:
        raise InputError(f"Codes of {bits} bits take {(bits + 7) // 8} bytes each, not {p.shape[1]}.")
    on = np.unpackbits(p, axis=1, count=bits, bitorder="little")
    return on.astype(np.int8) * 2 - 1


def binarize(values: ArrayLike) -> NDArray[np.bool_]:
    """Return the bits of embeddings: True where a value is at least 0, so that sgn(0) = +1.

    Parameters
    ----------
    values
        Embeddings (N, bits), finite.

    Returns
    -------
    ndarray of bool
        Bits (N, bits), ready for `pack`.

    Raises
    ------
    InputError
        If a value is not a finite number.

    Examples
    --------
    >>> binarize([[0.3, -0.7, 0.0]]).tolist()
    [[True, False, True]]
    """
    v = np.asarray(values)
    if v.dtype.kind not in "biuf" or not np.isfinite(v).all():
        raise InputError("An embedding must hold finite numbers.")
    on: NDArray[np.bool_] = v >= 0
    return on


def check_packed(name: str, packed: ArrayLike) -> Packed:
    """Return packed codes as uint8 (N, bytes); other arrays are errors, in which `name` names the codes."""
    p = np.asarray(packed)
    if p.ndim != 2 or p.dtype != np.uint8:
        raise InputError(
            f"{name} must be packed: a uint8 matrix (items, bytes), not {p.dtype} of shape {p.shape}; see pack()."
        )
    if not 1 <= p.shape[1] <= MAX_BITS // 8:
        raise InputError(f"{name} must have 1 to {MAX_BITS // 8} bytes each, not {p.shape[1]}.")
    return p


def to_words(packed: Packed) -> Words:
    """Return packed codes (N, bytes) as 64-bit words (W, N), the layout that the kernels read.

    For 64-bit codes this is a view; otherwise a copy, padded with zeros, which do not change distances.
    """
    items, width = packed.shape
    if width in (1, 2, 4):  # converting whole integers is far faster than copying single bytes
        return np.ascontiguousarray(packed).view(f"<u{width}").astype(np.uint64).reshape(1, items)
    padded = packed
    if width % 8:
        padded = np.zeros((items, width + -width % 8), np.uint8)
        padded[:, :width] = packed
    return np.ascontiguousarray(np.ascontiguousarray(padded).view("<u8").T)


def empty_words(shape: tuple[int, ...]) -> Words:
    """Return an uninitialized array that begins a cache line. NumPy's may begin 16 bytes later, and a line takes two reads.

    >>> words = empty_words((3, 8))
    >>> words.shape, words.ctypes.data % 64
    ((3, 8), 0)
    """
    size = 8 * math.prod(shape)
    memory = np.empty(size + _CACHE_LINE, np.uint8)
    begin = -memory.ctypes.data % _CACHE_LINE
    return memory[begin : begin + size].view(np.uint64).reshape(shape)
