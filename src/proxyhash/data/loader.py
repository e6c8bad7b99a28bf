"""Batches of transformed images, prefetched by threads."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.crop import CropBox
from proxyhash.data.decoding import Pixels, UnreadableImageError
from proxyhash.data.images import Images, Indices, is_in_memory
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import AugmentParams, Floats, Transform
from proxyhash.utils.parallel import available_threads, prefetch
from proxyhash.utils.validation import check_int

PREFETCH_BATCHES = 2  # with one, a worker would be idle at the end of each batch


@dataclass(frozen=True)
class Batch:
    """Images (n, 3, size, size), floats from 0 to 255, and their indices, without unreadable images.

    In memory, the channels of an image are last.
    """

    images: Floats
    indices: Indices


def load_batches(
    images: Images,
    batches: Iterable[Indices],
    transform: Transform,
    *,
    augment_params: AugmentParams | None = None,
    skipped: SkippedItems | None = None,
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield the batches in order, augmented by `augment_params` (N, 5), or preprocessed without them.

    An image that cannot be read is counted in `skipped` and left out; without `skipped` it is an error.
    """
    workers = available_threads() if workers is None else check_int("The number of workers", workers, 1)
    reader = _Reader(images, transform, augment_params, skipped)
    yield from reader.from_memory(batches) if is_in_memory(images) else reader.from_files(batches, workers)


@dataclass(frozen=True)
class _PendingBatch:
    """A batch whose images are being read."""

    indices: Indices
    pixels: NDArray[Any]
    reads: list[Future[UnreadableImageError | None]]


@dataclass(frozen=True)
class _Reader:
    images: Images
    transform: Transform
    augment_params: AugmentParams | None
    skipped: SkippedItems | None

    def from_memory(self, batches: Iterable[Indices]) -> Iterator[Batch]:
        """Yield batches of images in memory, which need no prefetching."""
        for indices in batches:
            stored = self.images.pixels_in_memory(indices)
            assert stored is not None
            yield Batch(self._transformed(stored, indices), indices)

    def from_files(self, batches: Iterable[Indices], workers: int) -> Iterator[Batch]:
        """Yield batches of decoded files. The pool decodes single images, so that no worker waits for a batch."""
        pool = ThreadPoolExecutor(workers)
        try:
            for begun in prefetch((self._begin(pool, indices) for indices in batches), PREFETCH_BATCHES):
                yield self._finish(begun)
        finally:  # a consumer that stops early does not wait for prefetched batches
            pool.shutdown(cancel_futures=True)

    def _begin(self, pool: ThreadPoolExecutor, indices: Indices) -> _PendingBatch:
        """Start decoding into one array: squares that are transformed later, or crops that are final."""
        parts: Sequence[CropBox | None] = [None] * len(indices)
        side, dtype = self.transform.side, "uint8"
        if self.transform.can_decode_crops:
            parts = self.transform.crop_boxes(
                len(indices), None if self.augment_params is None else self.augment_params[indices]
            )
            side, dtype = self.transform.size, "float32"
        pixels = np.empty((len(indices), side, side, 3), dtype)
        items = zip(indices.tolist(), parts, pixels, strict=True)
        return _PendingBatch(indices, pixels, [pool.submit(self._read, *item) for item in items])

    def _finish(self, begun: _PendingBatch) -> Batch:
        errors = [read.result() for read in begun.reads]
        indices, pixels = begun.indices, begun.pixels
        for index, error in zip(indices.tolist(), errors, strict=True):
            if error is not None:
                self._count(index, error)
        if any(errors):
            good = np.array([error is None for error in errors])
            indices, pixels = indices[good], pixels[good]
        if self.transform.can_decode_crops:
            return Batch(pixels.transpose(0, 3, 1, 2), indices)
        return Batch(self._transformed(pixels, indices), indices)

    def _read(self, index: int, part: CropBox | None, out: NDArray[Any]) -> UnreadableImageError | None:
        """Read one image into `out`, or return the error."""
        try:
            if part is None:
                out[:] = self.images.read_square(index, self.transform.side, self.transform.fit)
            else:
                self.images.read_crop(index, part, out)
        except UnreadableImageError as error:
            return error
        return None

    def _count(self, index: int, error: UnreadableImageError) -> None:
        if self.skipped is None:
            raise error
        self.skipped.add(error.kind, f"{self.images.key(index)} {error.reason}")

    def _transformed(self, squares: Pixels, indices: Indices) -> Floats:
        if self.augment_params is None:
            return self.transform.preprocess(squares)
        import torch

        draws = torch.from_numpy(self.augment_params[indices])
        augmented: Floats = self.transform.augment(torch.from_numpy(squares), draws).numpy()
        return augmented
