"""Batches of transformed images, read ahead by threads: Pillow decodes without holding Python's lock."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxyhash.data.decoding import Pixels, UnreadableImageError
from proxyhash.data.images import Images, Indices, in_memory
from proxyhash.data.problems import Problems
from proxyhash.data.transforms import Draws, Transform
from proxyhash.support.parallel import available_threads, lookahead

AHEAD = 2  # batches that are read while one is used: one would leave a worker idle at each batch's end
UNREADABLE = "unreadable image"


@dataclass(frozen=True)
class Batch:
    """Images (n, 3, size, size), floats from 0 to 255, and which they are. What could not be read is not among them."""

    images: Tensor
    indices: Indices


def load_batches(
    images: Images,
    batches: Iterable[Indices],
    transform: Transform,
    *,
    draws: Draws | None = None,
    problems: Problems | None = None,
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield the batches in order, augmented by `draws` (N, 5) if they are given, as for testing if not.

    An image that cannot be read is counted in `problems` and left out; without `problems` it is an error.
    """
    workers = workers or available_threads()
    reader = _Reader(images, transform, draws, problems if problems is not None else Problems(strict=True))
    yield from reader.from_memory(batches) if in_memory(images) else reader.from_files(batches, workers)


@dataclass(frozen=True)
class _Reader:
    images: Images
    transform: Transform
    draws: Draws | None
    problems: Problems

    def from_memory(self, batches: Iterable[Indices]) -> Iterator[Batch]:
        """Yield batches of stored pixels: so cheap that nothing need be read ahead."""
        for indices in batches:
            stored = self.images.stored(indices)
            assert stored is not None
            yield Batch(self._transformed(stored, indices), indices)

    def from_files(self, batches: Iterable[Indices], workers: int) -> Iterator[Batch]:
        """Yield batches of decoded files. Images are the unit of work, so that the last of a batch wait for nobody."""
        pool = ThreadPoolExecutor(workers)
        try:
            started = ([pool.submit(self._read, int(index)) for index in indices] for indices in batches)
            for reads in lookahead(started, AHEAD):
                yield self._batch([read.result() for read in reads])
        finally:  # whoever stops early does not wait for what was read ahead
            pool.shutdown(cancel_futures=True)

    def _batch(self, read: list[tuple[int, Pixels | str]]) -> Batch:
        good = [(index, pixels) for index, pixels in read if not isinstance(pixels, str)]
        for message in (message for _, message in read if isinstance(message, str)):
            self.problems.add(UNREADABLE, message)
        indices = np.array([index for index, _ in good], np.int64)
        side = self.transform.side
        squares = np.stack([pixels for _, pixels in good]) if good else np.zeros((0, side, side, 3), np.uint8)
        return Batch(self._transformed(squares, indices), indices)

    def _read(self, index: int) -> tuple[int, Pixels | str]:
        try:
            return index, self.images.read_square(index, self.transform.side, self.transform.fit)
        except UnreadableImageError as error:
            return index, str(error)

    def _transformed(self, squares: Pixels, indices: Indices) -> Tensor:
        tensor = torch.from_numpy(squares)
        if self.draws is None:
            return self.transform.for_testing(tensor)
        return self.transform.for_training(tensor, torch.from_numpy(self.draws[indices]))
