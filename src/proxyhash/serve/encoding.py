"""Embeddings of images and vectors, in batches by the model of the index; images are decoded in a process of their own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np
from fastapi import HTTPException
from numpy.typing import NDArray

from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.index.base import Index
from proxyhash.index.refinement.encoders import feature_encoder
from proxyhash.serve.batching import Batcher
from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers.decoder import PixelJob
from proxyhash.serve.workers.decoder_pool import DecoderPool
from proxyhash.utils.errors import MissingPackageError

if TYPE_CHECKING:
    from proxyhash.models.vector_hasher import VectorHasher

Embedding = NDArray[np.float32]


class EncodedQuery(NamedTuple):
    """An embedding (bits,) and, if the index has a refinement, the features (num_features,) of an image or a vector."""

    embedding: Embedding
    features: NDArray[np.float32] | None = None


@dataclass(frozen=True, eq=False)
class DecodedImage:
    """Pixels (side, side, 3), and what pixels the model took when they were decoded."""

    spec: PixelSpec
    pixels: NDArray[Any]


class ImageEncoder:
    """Encodes images with the model of an index, which may change while the service runs."""

    def __init__(
        self,
        index: Index,
        decoders: DecoderPool,
        *,
        max_batch_size: int,
        max_queue_size: int,
        on_batch: Callable[[int], None],
    ) -> None:
        self._index, self._decoders = index, decoders
        self._batcher: Batcher[DecodedImage, EncodedQuery] = Batcher(
            "encoding", self._embed, max_batch_size=max_batch_size, max_queue_size=max_queue_size, on_batch=on_batch
        )

    def warm_up(self) -> None:
        """Load the model and run it once."""
        spec = self._pixel_spec()
        self._embed([DecodedImage(spec, np.zeros(spec.shape, spec.dtype))])

    async def embed(self, data: bytes) -> EncodedQuery:
        """Return the embedding of an image file, and its features."""
        spec = await asyncio.to_thread(self._pixel_spec)
        return await self._batcher.submit(DecodedImage(spec, await self._decoders.decode(PixelJob(spec), data)))

    def close(self) -> None:
        """Finish the batch that is being encoded."""
        self._batcher.close()

    def _pixel_spec(self) -> PixelSpec:
        check_can_encode(self._index, "image")
        return self._index.encoder.pixel_spec

    def _embed(self, images: Sequence[DecodedImage]) -> list[EncodedQuery | Exception]:
        spec = self._pixel_spec()
        current = [number for number, image in enumerate(images) if image.spec == spec]
        results: list[EncodedQuery | Exception]
        results = [BusyError("The index has just moved to another model; try again.") for _ in images]
        if current:
            encoded = self._encode(np.stack([images[number].pixels for number in current]))
            for number, row in zip(current, encoded, strict=True):
                results[number] = row
        return results

    def _encode(self, pixels: NDArray[Any]) -> list[EncodedQuery]:
        """Return the embeddings of decoded images and, if the index has a refinement, their features of the same pass."""
        if self._index.has_refinement:
            encoder = feature_encoder(self._index, required=False)
            if encoder.has_features:
                return [EncodedQuery(*row) for row in zip(*encoder.outputs_of_pixels(pixels), strict=True)]
        return [EncodedQuery(row) for row in self._index.encoder.embed_pixels(pixels)]


class VectorEncoder:
    """Encodes vectors with the model of an index, which may change while the service runs."""

    def __init__(self, index: Index, *, max_batch_size: int, max_queue_size: int, on_batch: Callable[[int], None]) -> None:
        self._index = index
        self._batcher: Batcher[Embedding, EncodedQuery] = Batcher(
            "encoding", self._embed, max_batch_size=max_batch_size, max_queue_size=max_queue_size, on_batch=on_batch
        )

    def warm_up(self) -> None:
        """Load the model and run it once."""
        self._embed([np.ones(self._hasher().width, np.float32)])

    async def embed(self, vector: Sequence[float]) -> EncodedQuery:
        """Return the embedding of a vector, and itself as features; one that the model does not take is an InputError."""
        return await self._batcher.submit(await asyncio.to_thread(self._check, vector))

    def close(self) -> None:
        """Finish the batch that is being encoded."""
        self._batcher.close()

    def _hasher(self) -> "VectorHasher":
        check_can_encode(self._index, "vector")
        return cast("VectorHasher", self._index.hasher)

    def _check(self, vector: Sequence[float]) -> Embedding:
        """Return a vector (width,), so that an invalid one does not fail others of its batch."""
        values, _ = self._hasher().rows(np.array([vector], np.float64), "The vector").raw(slice(None))
        checked: Embedding = values[0]
        return checked

    def _embed(self, vectors: Sequence[Embedding]) -> list[EncodedQuery | Exception]:
        hasher = self._hasher()
        current = [number for number, vector in enumerate(vectors) if len(vector) == hasher.width]
        results: list[EncodedQuery | Exception]
        results = [BusyError("The index has just moved to another model; try again.") for _ in vectors]
        if current:
            rows = hasher.rows(np.stack([vectors[number] for number in current]))
            for number, *row in zip(current, hasher.embed(rows), rows[:], strict=True):
                results[number] = EncodedQuery(*row)
        return results


def can_encode(index: Index) -> bool:
    """Return whether images or vectors can be encoded for an index here."""
    if index.model is None or find_spec("torch") is not None:
        return index.model is not None
    try:
        index.encoder  # noqa: B018  it is kept
    except MissingPackageError:
        return False
    return True


def check_can_encode(index: Index, kind: Literal["image", "vector"]) -> None:
    """Raise HTTPException if images or vectors cannot be encoded for an index here."""
    if index.model is None:
        raise HTTPException(422, "The index holds codes from elsewhere and has no model; search by code, key or embedding.")
    if index.input != kind:
        raise HTTPException(422, f"The model of the index takes {index.input}s, not {kind}s.")
    if not can_encode(index):
        raise HTTPException(
            501, f"The {kind} cannot be encoded here, because torch is not installed; search by code or key."
        )
