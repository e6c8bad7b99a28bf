"""Queries of an index: packed codes, embeddings, vectors, image files or pixels, as codes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import Packed, Words, binarize, pack, to_words
from proxyhash.data.vectors.rows import VectorRows
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.data import SkippedItems
    from proxyhash.index.refinement.refiner import StoredRows
    from proxyhash.models.encoder import ModelEncoder
    from proxyhash.models.vector_hasher import VectorHasher

ArraysLike = NDArray[Any] | str | Path | Sequence[str | Path]
"""Packed codes (Q, bytes), embeddings (Q, bits) as floats, pixels (Q, side, side, 3), or image files.

If the model of the index takes vectors: packed codes, or vectors (Q, width) as floats, which are always encoded.
"""


@dataclass(frozen=True, eq=False)
class EncodedQueries:
    """Q queries, or N items to add.

    Attributes
    ----------
    names
        Names of the queries.
    codes
        Packed codes (Q, bytes).
    embeddings
        Embeddings (Q, bits), where they are known.
    features
        Features q(x) of images, or vectors as the model takes them, (Q, num_features); by these ties are refined.
    rows
        Refinement rows (Q, bytes) of stored items, instead of features.
    """

    names: Sequence[str]
    codes: Packed
    embeddings: NDArray[np.float32] | None = None
    features: "Features | None" = None
    rows: "StoredRows | None" = None

    @property
    def words(self) -> Words:
        """Return the codes as words (Q, W)."""
        return np.ascontiguousarray(to_words(self.codes).T)


QueriesLike = ArraysLike | EncodedQueries

Features = NDArray[np.float32] | VectorRows
"""Features (n, num_features), in memory or read on demand."""


def take_features(features: Features, rows: slice | Sequence[int]) -> Features:
    """Return the features of some items."""
    chosen = rows if isinstance(rows, slice) else np.asarray(rows, np.int64)
    return features.part(chosen) if isinstance(features, VectorRows) else features[chosen]


def encode_queries(
    given: QueriesLike,
    bits: int,
    encoder: "Callable[[], ModelEncoder]",
    width: int | None = None,
    *,
    with_features: bool = False,
) -> EncodedQueries:
    """Return the codes of queries of any kind; `encoder` is called only for images and vectors.

    With `width`, the number of values of the vectors that the model takes, floats are vectors, and never embeddings. With
    `with_features`, images and vectors have their features too.
    """
    if isinstance(given, EncodedQueries):
        check_codes(given.codes, bits)
        return given
    if width is not None and not _are_codes(given):
        return _encode_vectors(given, encoder, with_features=with_features)
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
    embeddings, features = _embed(encoder(), given, with_features=with_features)
    return from_embeddings(names, embeddings, bits, features)


def encode_items(
    given: QueriesLike,
    keys: Sequence[str] | None,
    bits: int,
    encoder: "Callable[[], ModelEncoder]",
    width: int | None = None,
    *,
    with_features: bool = False,
) -> EncodedQueries:
    """Return the codes of items to add, named by their keys; without keys, files are named by their paths."""
    if keys is None and isinstance(given, np.ndarray):
        raise InputError("Codes need keys, one each, by which they are found again.")
    if width is not None and not isinstance(given, EncodedQueries) and not _are_codes(given):
        hasher = cast("VectorHasher", encoder())
        rows = hasher.rows(_check_vectors(given))
        return EncodedQueries(keys or [], hasher.encode(rows), features=rows if with_features else None)
    if isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind != "f":
        return EncodedQueries(keys or [], check_codes(given, bits))
    encoded = encode_queries(given, bits, encoder, with_features=with_features)
    return encoded if keys is None else replace(encoded, names=keys)


def _are_codes(given: ArraysLike) -> bool:
    return isinstance(given, np.ndarray) and given.dtype == np.uint8 and given.ndim == 2


def _check_vectors(given: ArraysLike) -> NDArray[Any]:
    """Return vectors as they were given, if they are an array."""
    if not isinstance(given, np.ndarray):
        raise InputError("The model of this index takes vectors, not images; give an array of floats (N, width).")
    return given


def _encode_vectors(given: ArraysLike, encoder: "Callable[[], ModelEncoder]", *, with_features: bool) -> EncodedQueries:
    """Return codes as `VectorHasher.encode` gives them for items, and the embeddings."""
    hasher = cast("VectorHasher", encoder())
    rows = hasher.rows(_check_vectors(given))
    codes, names = hasher.encode(rows), [f"query {number}" for number in range(len(rows))]
    return EncodedQueries(names, codes, hasher.embed(rows), rows if with_features else None)


def _embed(
    encoder: "ModelEncoder", images: ArraysLike, *, with_features: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """Return the embeddings of images, and their features if they are wanted and the model gives them.

    An image that cannot be read is an error.
    """
    from proxyhash.data import SkippedItems

    skipped = SkippedItems()
    if not with_features or not encoder.has_features:
        kept, embeddings = encoder.embed(images, on_error="skip", skipped=skipped)
        _check_readable(len(kept), images, skipped)
        return embeddings, None
    batches = list(encoder.output_batches(images, skipped))
    _check_readable(sum(len(indices) for indices, _ in batches), images, skipped)
    embeddings, features = (np.concatenate(each) for each in zip(*(outputs for _, outputs in batches), strict=True))
    return embeddings, features


def _check_readable(count: int, images: ArraysLike, skipped: "SkippedItems") -> None:
    """Raise an InputError if fewer images could be read than there are."""
    if count < len(images):  # type: ignore[arg-type]  # a single path was put into a list before
        raise InputError(f"{next(iter(skipped.examples.values()))[0].rstrip('.')}.")


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


def from_embeddings(
    names: Sequence[str], embeddings: NDArray[np.float32], bits: int, features: Features | None = None
) -> EncodedQueries:
    """Return queries with embeddings (Q, bits), which are never taken for vectors."""
    if embeddings.shape[1] != bits:
        raise InputError(f"Embeddings of {embeddings.shape[1]} bits cannot be compared with an index of {bits} bits.")
    return EncodedQueries(names, pack(binarize(embeddings)), embeddings, features)
