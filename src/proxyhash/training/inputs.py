"""Inputs of batches: cached features, or images that are augmented in every epoch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.data import Dataset
from proxyhash.data.images import Images, Indices, is_in_memory
from proxyhash.data.loader import load_batches
from proxyhash.data.transforms import Transform, default_transform, draw_augment_params, get_transform
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.wrapped import WrappedBackbone
from proxyhash.training.config import OptimConfig

SMALL_IMAGE_SIZE = 112  # Size for fine-tuning on small images: a quarter of the work of 224 pixels.


class InputSource(Protocol):
    """Inputs of the model for batches of image indices."""

    def chunks(self, indices: Indices, epoch: int) -> list[Indices]:
        """Return the positions in `indices` of the images that batches of an epoch may mix, in the order of the epoch."""
        ...

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

    def chunks(self, indices: Indices, epoch: int) -> list[Indices]:  # noqa: ARG002
        """Return one chunk: any images may be in a batch."""
        return [np.arange(len(indices))]

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:  # noqa: ARG002
        """Yield the features of each batch."""
        return self.eval_batches(batches)

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield the features of each batch."""
        for batch in batches:
            yield torch.from_numpy(np.asarray(self.features[batch], np.float32))


@dataclass(frozen=True)
class ImageSource:
    """Images through a transform. An image that became unreadable raises an `UnreadableImageError`."""

    images: Images
    transform: Transform
    optim: OptimConfig
    seed: int = 0

    def chunks(self, indices: Indices, epoch: int) -> list[Indices]:  # noqa: ARG002
        """Return one chunk: any images may be in a batch."""
        return [np.arange(len(indices))]

    def train_batches(self, batches: Sequence[Indices], epoch: int) -> Iterator[Tensor]:
        """Yield augmented images of the epoch's size. Draws depend on seed, epoch and image only."""
        draws = draw_augment_params(len(self.images), self.seed, epoch)
        transform = self.transform.resized(self.optim.resize_factor(epoch))
        for batch in load_batches(self.images, batches, transform, augment_params=draws):
            yield torch.from_numpy(batch.images)

    def eval_batches(self, batches: Sequence[Indices]) -> Iterator[Tensor]:
        """Yield images without augmentation."""
        for batch in load_batches(self.images, batches, self.transform):
            yield torch.from_numpy(batch.images)


def resolve_transform(
    dataset: Dataset, backbone: Backbone, image_size: int | None = None, name: str | None = None, *, finetune: bool = False
) -> Transform:
    """Return the named transform, or the default for the images and the backbone."""
    if name is not None:
        transform = get_transform(name, image_size)
        return replace(transform, flip=transform.flip and dataset.flip_safe)
    return default_transform(dataset, image_size or _default_image_size(dataset, backbone, finetune))


def _default_image_size(dataset: Dataset, backbone: Backbone, finetune: bool) -> int:
    size, pretrained = backbone.config.image_size, backbone.config.pretrained_on is not None
    if isinstance(backbone, WrappedBackbone):  # the caller of `wrap_backbone` has chosen it
        return size
    stored = dataset.images.pixels_in_memory(np.zeros(1, np.int64)) if is_in_memory(dataset.images) else None
    if stored is None or (pretrained and not finetune):
        return size
    return min(size, SMALL_IMAGE_SIZE) if pretrained else stored.shape[1]
