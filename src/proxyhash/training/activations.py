"""Batches of cached activations, read from disk in large blocks and shuffled in memory."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.images import Indices
from proxyhash.data.transforms import draw_augment_params
from proxyhash.models.activation_cache import to_inputs
from proxyhash.utils.parallel import prefetch
from proxyhash.utils.random import generator

CHUNK_BYTES = 3 << 29  # activations that are shuffled together; twice as much is in memory while the next are read
BLOCK_BYTES = 1 << 25  # read from one place; long enough for the full speed of a disk

Halves = NDArray[np.float16]


@dataclass(frozen=True)
class ActivationSource:
    """Activations of all images for the upper stages of a backbone.

    If they take more than `chunk_bytes`, an epoch goes through the file in chunks of random blocks, and images are shuffled
    within a chunk. In training, each image has one of its crops, and maps are flipped at random.

    Parameters
    ----------
    crops
        Arrays (N, H, W, C) or (N, ...), one for each version of the images; the first is that of the evaluation.
    flip
        Whether mirrored images mean the same.
    seed
        Decides all draws, with the epoch.
    chunk_bytes, block_bytes
        Sizes of what is shuffled together and of what is read from one place.
    """

    crops: tuple[Halves, ...]
    flip: bool
    seed: int = 0
    chunk_bytes: int = CHUNK_BYTES
    block_bytes: int = BLOCK_BYTES

    def chunks(self, indices: Indices, epoch: int) -> list[Indices]:
        """Return the positions in `indices` of the images that are shuffled together, chunk by chunk."""
        chunk_of = self._chunk_of(epoch)[indices]
        return [np.flatnonzero(chunk_of == chunk) for chunk in np.unique(chunk_of)]

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield the activations of each batch, flipped and of random crops. Draws depend on seed, epoch and image only."""
        draws = draw_augment_params(len(self.crops[0]), self.seed, epoch)
        chunk_of = self._chunk_of(epoch)
        groups = [list(group) for _, group in groupby(batches, lambda batch: int(chunk_of[batch[0]]) if len(batch) else -1)]
        with ThreadPoolExecutor(1) as pool:
            loads = (pool.submit(self._load, group, draws[:, 1]) for group in groups)
            for group, load in zip(groups, prefetch(loads, 1), strict=True):
                rows, values = load.result()
                for batch in group:
                    yield self._augmented(values[np.searchsorted(rows, batch)], draws[batch, 0] < 0.5)
                del values

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield the activations of each batch as the evaluation has them."""
        for batch in batches:
            yield to_inputs(self.crops[0][batch])

    def _chunk_of(self, epoch: int) -> NDArray[np.int64]:
        """Return the chunk of each image (N,) in an epoch."""
        images, row_bytes = len(self.crops[0]), self.crops[0][:1].nbytes
        in_block = max(1, self.block_bytes // row_bytes)
        blocks = -(-images // in_block)
        chunks = min(blocks, -(-images * row_bytes // self.chunk_bytes))
        order = generator(self.seed, "chunks", epoch).permutation(blocks)
        return np.repeat(order * chunks // blocks, in_block)[:images]  # chunks of equal sizes

    def _load(self, batches: Sequence[Indices], draws: NDArray[np.float32]) -> tuple[Indices, Halves]:
        """Return the sorted images of batches and their activations, each of one of its crops."""
        rows = np.unique(np.concatenate(batches))
        values = np.empty((len(rows), *self.crops[0].shape[1:]), np.float16)
        chosen = (draws[rows] * len(self.crops)).astype(np.int64)
        for crop, stored in enumerate(self.crops):
            wanted = np.flatnonzero(chosen == crop)
            for run in np.split(wanted, np.flatnonzero(np.diff(rows[wanted]) > 1) + 1):
                if len(run):
                    values[run] = stored[rows[run[0]] : rows[run[-1]] + 1]
        return rows, values

    def _augmented(self, values: Halves, is_mirrored: NDArray[np.bool_]) -> Tensor:
        if self.flip and values.ndim == 4:
            values[is_mirrored] = values[is_mirrored, :, ::-1]
        return to_inputs(values)
