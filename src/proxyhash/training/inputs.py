"""Inputs of batches: cached features, or images that are augmented in every epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import Transform, augmentation_draws
from proxyhash.training.config import OptimConfig


class InputSource(Protocol):
    """Inputs of the model for batches of image indices."""

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield the inputs of each batch in an epoch of training, augmented."""
        ...

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield the inputs of each batch without augmentation."""
        ...


@dataclass(frozen=True)
class FeatureSource:
    """Features (N, width) of all images, memory-mapped from the cache."""

    features: NDArray[np.float32]

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:  # noqa: ARG002
        """Yield the features of each batch."""
        return self.eval_batches(batches)

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield the features of each batch."""
        for batch in batches:
            yield torch.from_numpy(np.asarray(self.features[batch]))


@dataclass(frozen=True)
class ImageSource:
    """Images through a transform. An image that became unreadable raises an `UnreadableImageError`."""

    images: Images
    transform: Transform
    optim: OptimConfig
    seed: int = 0

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield augmented images of the epoch's size. Draws depend on seed, epoch and image only."""
        draws = augmentation_draws(len(self.images), self.seed, epoch)
        transform = self.transform.shrunk(self.optim.resize_factor(epoch))
        for batch in load_batches(self.images, batches, transform, draws=draws):
            yield batch.images

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield images without augmentation."""
        for batch in load_batches(self.images, batches, self.transform):
            yield batch.images
