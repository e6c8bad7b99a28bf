"""Queries of an index: packed codes, embeddings, vectors, image files or pixels, as codes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, binarize, pack, to_words
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.models.encoder import ModelEncoder
    from proxyhash.models.vector_hasher import VectorHasher

ArraysLike = NDArray[Any] | str | Path | Sequence[str | Path]
"""Packed codes (Q, bytes), embeddings (Q, bits) as floats, pixels (Q, side, side, 3), or image files.

If the model of the index takes vectors: packed codes, or vectors (Q, width) as floats, which are always encoded.
"""


@dataclass(frozen=True, eq=False)
class EncodedQueries:
    """Q queries: their `names`, packed `codes` (Q, bytes), and `embeddings` (Q, bits) where they are known."""

    names: Sequence[str]
    codes: Packed
    embeddings: NDArray[np.float32] | None = None

    @property
    def words(self) -> Words:
        """Return the codes as words (Q, W)."""
        return np.ascontiguousarray(to_words(self.codes).T)


QueriesLike = ArraysLike | EncodedQueries


def encode_queries(
    given: QueriesLike, bits: int, encoder: "Callable[[], ModelEncoder]", width: int | None = None
) -> EncodedQueries:
    """Return the codes of queries of any kind; `encoder` is called only for images and vectors.

    With `width`, the number of values of the vectors that the model takes, floats are vectors, and never embeddings.
    """
    if isinstance(given, EncodedQueries):
        check_codes(given.codes, bits)
        return given
    if width is not None and not _are_codes(given):
        return _encode_vectors(given, encoder)
    if isinstance(given, np.ndarray) and given.ndim == 2:
        names = [f"query {number}" for number in range(len(given))]
        if given.dtype.kind == "f":
            return from_embeddings(names, given.astype(np.float32), bits)
        return EncodedQueries(names, check_codes(given, bits))
    if isinstance(given, (str, Path)):
        given = [given]
    names = [str(path) for path in given] if not isinstance(given, np.ndarray) else []
    names = names or [f"image {number}" for number in range(len(given))]
    if len(given) == 0:
        raise InputError("At least one query is needed.")
    return from_embeddings(names, _embed(encoder(), given), bits)


def encode_items(
    given: QueriesLike,
    keys: Sequence[str] | None,
    bits: int,
    encoder: "Callable[[], ModelEncoder]",
    width: int | None = None,
) -> tuple[Packed, Sequence[str]]:
    """Return packed codes (N, bytes) and keys (N,) of items to add; without keys, files are named by their paths."""
    if keys is None and isinstance(given, np.ndarray):
        raise InputError("Codes need keys, one each, by which they are found again.")
    if width is not None and not isinstance(given, EncodedQueries) and not _are_codes(given):
        return cast("VectorHasher", encoder()).encode(_check_vectors(given)), keys or []
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind != "f":
        return check_codes(given, bits), keys or []
    encoded = encode_queries(given, bits, encoder)
    return encoded.codes, encoded.names if keys is None else keys


def _are_codes(given: ArraysLike) -> bool:
    return isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == 2


def _check_vectors(given: ArraysLike) -> NDArray[Any]:
    """Return vectors as they were given, if they are an array."""
    if not isinstance(given, np.ndarray):
        raise InputError("The model of this index takes vectors, not images; give an array of floats (N, width).")
    return given


def _encode_vectors(given: ArraysLike, encoder: "Callable[[], ModelEncoder]") -> EncodedQueries:
    """Return codes as `VectorHasher.encode` gives them for items, and the embeddings."""
    vectors, hasher = _check_vectors(given), cast("VectorHasher", encoder())
    codes = hasher.encode(vectors)
    return EncodedQueries([f"query {number}" for number in range(len(vectors))], codes, hasher.embed(vectors))


def _embed(encoder: "ModelEncoder", images: ArraysLike) -> NDArray[np.float32]:
    """Return the embeddings of images; one that cannot be read is an error."""
    from proxyhash.data import SkippedItems

    problems = SkippedItems()
    kept, embeddings = encoder.embed(images, on_error="skip", skipped=problems)
    if len(kept) < len(images):  # type: ignore[arg-type]  # a single path was put into a list before
        raise InputError(f"{next(iter(problems.examples.values()))[0].rstrip('.')}.")
    return embeddings


def check_codes(codes: NDArray[Any], bits: int) -> Packed:
    """Return packed codes, contiguous, if they have as many bits as the index."""
    width = (bits + 7) // 8
    if codes.ndim != 2 or codes.dtype != np.uint8:
        raise InputError(f"Codes must be packed, uint8 (items, bytes), not {codes.dtype} {codes.shape}; see codes.pack.")
    if codes.shape[1] != width:
        raise InputError(f"Codes of {codes.shape[1]} bytes do not fit an index of {bits} bits, whose codes have {width}.")
    if bits % 8 and len(codes) and (codes[:, -1] >> (bits % 8)).any():
        raise InputError(f"Codes have bits set beyond the {bits} of the index.")
    return np.ascontiguousarray(codes)


def from_embeddings(names: Sequence[str], embeddings: NDArray[np.float32], bits: int) -> EncodedQueries:
    """Return queries with embeddings (Q, bits), which are never taken for vectors."""
    if embeddings.shape[1] != bits:
        raise InputError(f"Embeddings of {embeddings.shape[1]} bits cannot be compared with an index of {bits} bits.")
    return EncodedQueries(names, pack(binarize(embeddings)), embeddings)
