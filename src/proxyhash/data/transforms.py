"""Named transforms from pixels to network inputs, as operations on a whole batch; evaluation does not need torch.

Files are decoded to squares of one size; images in memory have one size already. `random_resized` crops of files are taken
during decoding, so that nothing is resized twice. Random parameters are drawn beforehand, five for each image and epoch, so
that they do not depend on batches, workers and processes.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.crop import CropBox
from proxyhash.data.decoding import Fit
from proxyhash.data.images import is_in_memory
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.data.resize import resize
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator
from proxyhash.utils.registry import Registry
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from torch import Tensor

    from proxyhash.data.dataset import Dataset

Crop = Literal["none", "random_crop", "pad_shift", "random_resized"]
AugmentParams = NDArray[np.float32]
Floats = NDArray[np.float32]

SIZE_STEP, MIN_SIZE = (
    16,
    64,
)  # sides that images are shrunk to: multiples of the one, as networks halve them; never below the other
CENTER_FRACTION = 0.875  # of the side, for evaluation where training crops


@dataclass(frozen=True)
class Transform:
    """Transform of an image to (3, size, size): resized to a square of `side` by `fit`, cropped, flipped, resized.

    Crops in training: `random_crop` takes size x size of the square, `pad_shift` shifts the square with reflection padding,
    `random_resized` takes a random area with a random aspect ratio. In evaluation, `random_crop` and `random_resized` are
    center crops.
    """

    name: str
    summary: str
    size: int
    side: int
    fit: Fit = "squash"
    crop: Crop = "none"
    flip: bool = True

    def augment(self, squares: "Tensor", draws: "Tensor") -> "Tensor":
        """Return (n, 3, size, size) floats from 0 to 255, from squares (n, H, H, 3) of bytes and parameters (n, 5)."""
        from proxyhash.data.augmentation import augment

        return augment(squares, draws, crop=self.crop, size=self.size, side=self.side, flip=self.flip)

    def preprocess(self, squares: NDArray[Any]) -> Floats:
        """Return (n, 3, size, size) floats from 0 to 255, from squares (n, H, H, 3), without randomness."""
        if self.crop == "random_crop":
            return _channels_first(_center(resize(squares, self.side), self.size))
        kept = round(squares.shape[1] * CENTER_FRACTION) if self.crop == "random_resized" else squares.shape[1]
        return _channels_first(resize(_center(squares, kept), self.size))

    def resized(self, scale: float) -> Self:
        """Return the same transform with the size multiplied by about `scale`."""
        size = max(MIN_SIZE, round(self.size * scale / SIZE_STEP) * SIZE_STEP)
        if scale == 1 or size >= self.size:
            return self
        return replace(self, size=size, side=round(self.side * size / self.size))

    @property
    def can_decode_crops(self) -> bool:
        """Return whether crops can be taken during decoding; other crops need the whole square."""
        return self.crop == "random_resized" and self.fit == "cover"

    @property
    def pixel_spec(self) -> PixelSpec:
        """Return how image files are decoded for evaluation."""
        if self.can_decode_crops:
            return PixelSpec(self.size, self.fit, self.crop_boxes(1, None)[0])
        return PixelSpec(self.side, self.fit)

    def preprocess_pixels(self, pixels: NDArray[Any]) -> Floats:
        """Return (n, 3, size, size) floats from 0 to 255, from decoded pixels (n, side, side, 3) of `pixel_spec`."""
        return _channels_first(pixels) if self.can_decode_crops else self.preprocess(pixels)

    def crop_boxes(self, count: int, draws: AugmentParams | None) -> list[CropBox]:
        """Return the crops of `count` images: by their parameters (count, 5), or center crops without them."""
        if draws is None:
            border = (1 - CENTER_FRACTION) / 2
            return [CropBox(border, border, CENTER_FRACTION, CENTER_FRACTION, flipped=False)] * count
        from proxyhash.data.augmentation import random_boxes

        return random_boxes(draws, flip=self.flip)


TRANSFORMS: Registry[Transform] = Registry("transform")
for _transform in (
    Transform("paper-cifar", "the paper's for CIFAR: to 227 pixels, mirrored at random", 227, 227),
    Transform(
        "paper-256", "the paper's for photographs: squashed to 256, windows of 227, mirrored", 227, 256, crop="random_crop"
    ),
    Transform(
        "small", "for small images: moved by an eighth over a mirrored border, mirrored, scaled", 96, 96, crop="pad_shift"
    ),
    Transform(
        "photo", "for photographs: parts of 35 to 100 % of the central square, mirrored", 224, 256, "cover", "random_resized"
    ),
):
    TRANSFORMS.add(_transform.name, _transform)


def list_transforms() -> list[str]:
    """Return the names of all transforms.

    Examples
    --------
    >>> list_transforms()
    ['paper-cifar', 'paper-256', 'small', 'photo']
    """
    return list(TRANSFORMS)


def get_transform(name: str, size: int | None = None) -> Transform:
    """Return a transform by name, at another size if given; the sizes of the paper's transforms are fixed.

    Raises
    ------
    InputError
        For an unknown name, or another size of one of the paper's transforms.

    Examples
    --------
    >>> get_transform("photo", 112).size
    112
    """
    found = TRANSFORMS.find(name)
    if size is None or size == found.size:
        return found
    if name.startswith("paper"):
        raise InputError(f"The transform {name} gives {found.size} pixels, not {size}: that is the paper's.")
    check_int("The size of an image", size, 1)
    side = round(size / CENTER_FRACTION) if found.crop == "random_resized" else size
    return replace(found, size=size, side=side)


def default_transform(dataset: "Dataset", size: int) -> Transform:
    """Return the default transform of a data set: `small` for images in memory, `photo` for files."""
    found = get_transform("small" if is_in_memory(dataset.images) else "photo", size)
    return replace(found, flip=dataset.flip_safe)


def draw_augment_params(images: int, seed: int, epoch: int) -> AugmentParams:
    """Return the random parameters of an epoch (images, 5), from 0 to 1: flip, row, column, area, aspect ratio."""
    return generator(seed, "augmentation", epoch).random((images, 5), dtype=np.float32)


def _center(squares: NDArray[Any], side: int) -> NDArray[Any]:
    """Return the central squares (n, side, side, 3) of squares (n, H, H, 3)."""
    first = (squares.shape[1] - side) // 2
    return squares[:, first : first + side, first : first + side]


def _channels_first(images: NDArray[Any]) -> Floats:
    """Return images (n, H, W, 3) as (n, 3, H, W); in memory, channels stay last."""
    return images.transpose(0, 3, 1, 2)
