"""What one must know of a network to feed it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from proxyhash.utils.errors import InputError

PerChannel = tuple[float, float, float]
IMAGENET_MEAN: PerChannel = (123.675, 116.28, 103.53)  # 255 * (0.485, 0.456, 0.406), what torchvision subtracts
IMAGENET_STD: PerChannel = (58.395, 57.12, 57.375)


@dataclass(frozen=True)
class BackboneConfig:
    """A network's name, native input side, normalization of pixel values 0..255, feature width and pretraining."""

    name: str
    image_size: int
    mean: PerChannel
    std: PerChannel
    num_features: int
    pretrained_on: str | None = None  # e.g. "ILSVRC-2012"; None: nothing, the weights are random

    def normalize(self, images: Tensor | npt.NDArray[np.uint8]) -> Tensor:
        """Return bytes (N, H, W, 3) or (N, 3, H, W) as the floats (N, 3, H, W) that the network takes."""
        pixels = _channels_second(_byte_tensor(images))
        mean, std = (pixels.new_tensor(values, dtype=torch.float32).view(3, 1, 1) for values in (self.mean, self.std))
        return (pixels - mean) / std


def _byte_tensor(images: Tensor | npt.NDArray[np.uint8]) -> Tensor:
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.require(images, requirements=["C", "W"]))  # torch dislikes views it cannot write to
    if images.dtype != torch.uint8:
        raise InputError(f"Images must be bytes (uint8, 0..255) before they are normalized, not {images.dtype}.")
    return images


def _channels_second(images: Tensor) -> Tensor:
    """Return a view (N, 3, H, W); bytes (N, H, W, 3) become what torch calls channels_last, its fastest layout."""
    shape = tuple(images.shape)
    first, last = (len(shape) == 4 and shape[axis] == 3 for axis in (1, -1))
    if first == last:
        raise InputError(f"Images must have the shape (N, H, W, 3) or (N, 3, H, W), with sides other than 3, not {shape}.")
    return images if first else images.permute(0, 3, 1, 2)
