"""Embeddings from cached features."""

from collections.abc import Iterator

import numpy as np

from proxyhash.data import SkippedItems
from proxyhash.data.images import Images, Indices
from proxyhash.models.hasher import Hasher
from proxyhash.models.onnx_backend import Floats, Outputs
from proxyhash.models.row_cache import CachedRows
from proxyhash.utils.progress import Progress, no_progress

CHUNK_SIZE = 4096  # images per batch
MARGIN = 1e-3  # rounding changes an embedding by about 1e-5


class CachedEmbedder:
    """Embeddings of a hasher with a frozen backbone, from the cached features of a data set.

    Only the head runs. An image with an embedding value within `MARGIN` of zero, whose sign could depend on rounding, goes
    through the whole network, so codes are the same as those of `Hasher.encode`.

    Parameters
    ----------
    hasher
        The hasher; its code is the sign of the embedding.
    images
        The images of the data set.
    features
        The features of these images.
    """

    def __init__(self, hasher: Hasher, images: Images, features: CachedRows) -> None:
        self.hasher = hasher
        self.features = features
        self._fingerprint = images.fingerprint()

    def embed_batches(
        self, images: Images, skipped: SkippedItems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Floats]]:
        """Yield the indices of readable images (n,) and their embeddings (n, bits), as `Hasher.embed_batches` does."""
        if images.fingerprint() != self._fingerprint:  # files changed after the features were computed
            yield from self.hasher.embed_batches(images, skipped, indices=indices, progress=progress)
            return
        indices = np.arange(len(images)) if indices is None else indices
        for first in range(0, len(indices), CHUNK_SIZE):
            chunk = indices[first : first + CHUNK_SIZE]
            readable = self.features.readable[chunk]
            for index in chunk[~readable]:
                skipped.add("unreadable image", images.key(int(index)))
            yield self._embed(images, chunk[readable])
            progress("encoding images", min(1.0, (first + CHUNK_SIZE) / len(indices)))

    def output_batches(
        self, images: Images, skipped: SkippedItems, *, indices: Indices | None = None, progress: Progress = no_progress
    ) -> Iterator[tuple[Indices, Outputs]]:
        """Yield the indices of readable images (n,), and their embeddings with features, as `Hasher.output_batches` does."""
        if images.fingerprint() != self._fingerprint:
            yield from self.hasher.output_batches(images, skipped, indices=indices, progress=progress)
            return
        for some, embeddings in self.embed_batches(images, skipped, indices=indices, progress=progress):
            yield some, Outputs(embeddings, np.asarray(self.features.values[some], np.float32))

    def _embed(self, images: Images, indices: Indices) -> tuple[Indices, Floats]:
        embeddings = self.hasher.head_forward(self.features.values[indices])
        uncertain = np.flatnonzero((np.abs(embeddings) < MARGIN).any(1))
        if len(uncertain):
            for some, rows in self.hasher.embed_batches(images, SkippedItems(), indices=indices[uncertain]):
                embeddings[np.searchsorted(indices, some)] = rows
        return indices, embeddings
