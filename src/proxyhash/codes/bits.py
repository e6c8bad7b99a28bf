"""The one place that knows how bits lie in bytes: bit k of a code is bit k % 8 (from the lowest) of byte k // 8."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

MAX_BITS = 4096

Packed = NDArray[np.uint8]
Words = NDArray[np.uint64]


def pack(codes: ArrayLike) -> Packed:
    """Pack codes (N, bits) into bytes (N, ceil(bits / 8)); unused bits of the last byte are 0.

    Booleans, and numbers that are all 0 or 1, are taken as bits; any other numbers by their sign, with sgn(0) = +1. What a
    network puts out should go through `signs` first, which never mistakes a row of zeros and ones for bits.

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
    """Return packed codes (N, ceil(bits / 8)) as +1 and -1 (N, bits), int8."""
    bits = check_int("bits", bits, minimum=1)
    p = check_packed("Codes", packed)
    if p.shape[1] != (bits + 7) // 8:
        raise InputError(f"Codes of {bits} bits take {(bits + 7) // 8} bytes each, not {p.shape[1]}.")
    on = np.unpackbits(p, axis=1, count=bits, bitorder="little")
    return on.astype(np.int8) * 2 - 1


def binarize(values: ArrayLike) -> NDArray[np.bool_]:
    """Return which values are at least 0, the bits of a real-valued embedding (N, bits): sgn(0) = +1."""
    v = np.asarray(values)
    if v.dtype.kind not in "biuf" or not np.isfinite(v).all():
        raise InputError("An embedding must hold finite numbers.")
    on: NDArray[np.bool_] = v >= 0
    return on


def check_packed(name: str, packed: ArrayLike) -> Packed:
    """Return packed codes as (N, bytes) uint8, or raise the sentence that says what is wrong with them."""
    p = np.asarray(packed)
    if p.ndim != 2 or p.dtype != np.uint8:
        raise InputError(
            f"{name} must be packed: a uint8 matrix (items, bytes), not {p.dtype} of shape {p.shape}; see pack()."
        )
    if not 1 <= p.shape[1] <= MAX_BITS // 8:
        raise InputError(f"{name} must have 1 to {MAX_BITS // 8} bytes each, not {p.shape[1]}.")
    return p


def to_words(packed: Packed) -> Words:
    """Return packed codes (N, bytes) as 64-bit words, word by word (W, N): what the kernels stream through.

    For 64-bit codes this is a view; otherwise a copy, padded with zeros, which no distance notices.
    """
    items, width = packed.shape
    if width in (1, 2, 4):  # numbers of their own: far faster than moving single bytes
        return np.ascontiguousarray(packed).view(f"<u{width}").astype(np.uint64).reshape(1, items)
    padded = packed
    if width % 8:
        padded = np.zeros((items, width + -width % 8), np.uint8)
        padded[:, :width] = packed
    return np.ascontiguousarray(np.ascontiguousarray(padded).view("<u8").T)
