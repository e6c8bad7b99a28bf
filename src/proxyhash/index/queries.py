"""What people search with: packed codes, real-valued embeddings, image files, or pixels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, binarize, pack
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher

Anything = NDArray[Any] | str | Path | Sequence[str | Path]
"""Packed codes (Q, bytes), embeddings nu (Q, bits) as floats, pixels (Q, side, side, 3), or image files."""


@dataclass(frozen=True, eq=False)
class Queries:
    """Q queries: their `names`, packed `codes` (Q, bytes), and `nu` (Q, bits) where it is known."""

    names: Sequence[str]
    codes: Packed
    nu: NDArray[np.float32] | None = None


def as_queries(given: Anything, bits: int, hasher: "Callable[[], Hasher]") -> Queries:
    """Return codes for whatever was given; `hasher` is called only for images."""
    if isinstance(given, np.ndarray) and given.ndim == 2:
        names = [f"query {number}" for number in range(len(given))]
        if given.dtype.kind == "f":
            return _embedded(names, given.astype(np.float32), bits)
        return Queries(names, checked_codes(given, bits))
    if isinstance(given, (str, Path)):
        given = [given]
    names = [str(path) for path in given] if not isinstance(given, np.ndarray) else []
    names = names or [f"image {number}" for number in range(len(given))]
    if len(given) == 0:
        raise InputError("At least one query is needed.")
    return _embedded(names, _readable(hasher(), given), bits)


def as_items(
    given: Anything, keys: Sequence[str] | None, bits: int, hasher: "Callable[[], Hasher]"
) -> tuple[Packed, Sequence[str]]:
    """Return packed codes (N, bytes) and a key each for whatever is to be added; files are named by their paths."""
    if keys is None and isinstance(given, np.ndarray):
        raise InputError("Codes need keys, one each, by which they are found again.")
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind != "f":
        return checked_codes(given, bits), keys or []
    asked = as_queries(given, bits, hasher)
    return asked.codes, asked.names if keys is None else keys


def _readable(hasher: "Hasher", images: Anything) -> NDArray[np.float32]:
    from proxyhash.data import Problems

    problems = Problems()
    kept, nu = hasher.embed_readable(images, problems)
    if len(kept) < len(images):  # type: ignore[arg-type]  # a single path was put into a list before
        raise InputError(f"{next(iter(problems.examples.values()))[0].rstrip('.')}.")
    return nu


def checked_codes(codes: NDArray[Any], bits: int) -> Packed:
    """Return packed codes if they have as many bits as the index."""
    width = (bits + 7) // 8
    if codes.ndim != 2 or codes.dtype != np.uint8:
        raise InputError(f"Codes must be packed, uint8 (items, bytes), not {codes.dtype} {codes.shape}; see codes.pack.")
    if codes.shape[1] != width:
        raise InputError(f"Codes of {codes.shape[1]} bytes do not fit an index of {bits} bits, whose codes have {width}.")
    if bits % 8 and len(codes) and (codes[:, -1] >> (bits % 8)).any():
        raise InputError(f"Codes have bits set beyond the {bits} of the index.")
    return np.ascontiguousarray(codes)


def _embedded(names: Sequence[str], nu: NDArray[np.float32], bits: int) -> Queries:
    if nu.shape[1] != bits:
        raise InputError(f"Embeddings of {nu.shape[1]} bits cannot be compared with an index of {bits} bits.")
    return Queries(names, pack(binarize(nu)), nu)
