"""Where a batch's inputs come from: cached features, or images that are augmented anew in every epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import Transform, draw_augment_params
from proxyhash.training.plan import Plan


class Source(Protocol):
    """Inputs for arrays of image numbers."""

    def training(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield the inputs of each batch as epoch `epoch` sees them."""
        ...

    def testing(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield the inputs of each batch with nothing random."""
        ...


@dataclass(frozen=True)
class FeatureSource:
    """Features (N, width) of all images, mapped from the cache."""

    features: NDArray[np.float32]

    def training(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:  # noqa: ARG002
        """Yield rows of the cache."""
        return self.testing(batches)

    def testing(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield rows of the cache."""
        for batch in batches:
            yield torch.from_numpy(np.asarray(self.features[batch]))


@dataclass(frozen=True)
class ImageSource:
    """Images through a transform. An image that cannot be read stops the training: it could be read before."""

    images: Images
    transform: Transform
    plan: Plan

    def training(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield augmented images as large as the epoch has them; what is random depends on seed, epoch and image alone."""
        draws = draw_augment_params(len(self.images), self.plan.seed, epoch)
        transform = self.transform.resized(self.plan.image_share(epoch))
        for batch in load_batches(self.images, batches, transform, augment_params=draws):
            yield batch.images

    def testing(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield images as they are evaluated."""
        for batch in load_batches(self.images, batches, self.transform):
            yield batch.images
