"""Data sets as map-style datasets of torch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset as MapStyleDataset

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Images
from proxyhash.data.transforms import Transform
from proxyhash.labels import UNLABELED, TagLabels


class TorchDataset(MapStyleDataset[tuple[Tensor, "int | Tensor"]]):
    """Images of a data set for a `DataLoader` of torch: pairs of an image (3, size, size) and its label.

    Images are floats from 0 to 255, as `hasher.network` takes them: it normalizes them itself. The label is the number of
    the class, -1 for none, or a vector (T,) of 0.0 and 1.0 for tags. An image that cannot be read raises an
    `UnreadableImageError`.

    Parameters
    ----------
    dataset
        The data set.
    indices
        Indices of images, such as `split.train`; None for all.
    transform
        How images are prepared, such as `get_transform("photo", 224)` or `hasher.transform`.
    augment
        Crop at random, and flip if the data set allows it, by torch's generator: workers get seeds of their own from the
        `DataLoader`.

    Examples
    --------
    >>> from proxyhash.data import load_dataset, make_split
    >>> from proxyhash.data.transforms import get_transform
    >>> digits = load_dataset("digits")
    >>> train = TorchDataset(digits, make_split(digits).train, get_transform("small", 16), augment=True)
    >>> images, labels = next(iter(torch.utils.data.DataLoader(train, batch_size=32)))
    >>> images.shape, labels.shape
    (torch.Size([32, 3, 16, 16]), torch.Size([32]))
    """

    def __init__(
        self,
        dataset: Dataset,
        indices: Sequence[int] | NDArray[np.int64] | None,
        transform: Transform,
        *,
        augment: bool = False,
    ) -> None:
        self.dataset, self.augment = dataset, augment
        self.transform = replace(transform, flip=transform.flip and dataset.flip_safe)
        every = np.arange(len(dataset))
        self.indices = (
            every if indices is None else every[np.asarray(indices, np.int64)]
        )  # an index out of range is an error

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.indices)

    def __getitem__(self, position: int) -> tuple[Tensor, int | Tensor]:
        """Return the image (3, size, size) and the label."""
        index = int(self.indices[position])
        draws = torch.rand(1, 5) if self.augment else None
        return _read(self.dataset.images, index, self.transform, draws), self._label(index)

    def _label(self, index: int) -> int | Tensor:
        labels: Any = self.dataset.labels
        if labels is None:
            return UNLABELED
        value = labels.values[index]
        return torch.from_numpy(value.astype(np.float32)) if isinstance(labels, TagLabels) else int(value)


def _read(images: Images, index: int, transform: Transform, draws: Tensor | None) -> Tensor:
    """Return one image (3, size, size), with the parameters (1, 5) of its augmentation if there are any."""
    stored = images.pixels_in_memory(np.array([index]))
    if stored is None and transform.can_decode_crops:
        (box,) = transform.crop_boxes(1, None if draws is None else draws.numpy())
        out = np.empty((transform.size, transform.size, 3), np.float32)
        images.read_crop(index, box, out)
        return torch.from_numpy(out).permute(2, 0, 1).contiguous()
    squares = images.read_square(index, transform.side, transform.fit)[None] if stored is None else stored
    if draws is None:
        return torch.from_numpy(transform.preprocess(squares)[0]).contiguous()
    return transform.augment(torch.from_numpy(np.array(squares)), draws)[0].contiguous()
