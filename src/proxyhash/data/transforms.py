"""Named transforms from pixels to network inputs, as tensor operations on a whole batch.

Files are decoded to squares of one size; images in memory have one size already. `random_resized` crops of files are taken
during decoding, so that nothing is resized twice. Random parameters are drawn beforehand, five for each image and epoch, so
that they do not depend on batches, workers and processes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from proxyhash.data.crop import CropBox
from proxyhash.data.dataset import Dataset
from proxyhash.data.decoding import Fit
from proxyhash.data.images import is_in_memory
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator
from proxyhash.utils.registry import Registry
from proxyhash.utils.validation import check_int

Crop = Literal["none", "random_crop", "pad_shift", "random_resized"]
AugmentParams = NDArray[np.float32]

AREA_RANGE = (0.35, 1.0)  # of `random_resized`, as a fraction of the square; smaller crops often miss the object
MAX_ASPECT_RATIO = 4 / 3  # of `random_resized`
SHIFT_DIVISOR = 8  # `pad_shift` shifts by up to 1/8 of the side: the usual 4 of CIFAR's 32 pixels
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

    def augment(self, squares: Tensor, draws: Tensor) -> Tensor:
        """Return (n, 3, size, size) floats from 0 to 255, from squares (n, H, H, 3) of bytes and parameters (n, 5)."""
        if self.crop == "random_resized":
            return _area_crops(_floats(squares), draws, self.size, self.flip)
        squares = self._large_enough(squares)
        side = squares.shape[1]
        if self.crop == "random_crop":
            start, length = (draws[:, 1:3] * (side - self.size + 1)).long(), self.size
        elif self.crop == "pad_shift":
            reach = max(1, side // SHIFT_DIVISOR)
            start, length = (draws[:, 1:3] * (2 * reach + 1)).long() - reach, side
        else:
            start, length = torch.zeros(len(squares), 2, dtype=torch.long), side
        mirrored = (draws[:, 0] < 0.5) if self.flip else torch.zeros(len(squares), dtype=torch.bool)
        return _scaled(_floats(_windows(squares, start, length, mirrored)), self.size)

    def preprocess(self, squares: Tensor) -> Tensor:
        """Return (n, 3, size, size) floats from 0 to 255, without randomness."""
        squares = self._large_enough(squares)
        side = squares.shape[1]
        kept = (
            self.size
            if self.crop == "random_crop"
            else round(side * CENTER_FRACTION)
            if self.crop == "random_resized"
            else side
        )
        first = (side - kept) // 2
        return _scaled(_floats(squares[:, first : first + kept, first : first + kept]), self.size)

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

    def preprocess_pixels(self, pixels: NDArray[Any]) -> Tensor:
        """Return (n, 3, size, size) floats from 0 to 255, from decoded pixels (n, side, side, 3) of `pixel_spec`."""
        tensor = torch.from_numpy(pixels)
        return tensor.permute(0, 3, 1, 2) if self.can_decode_crops else self.preprocess(tensor)

    def crop_boxes(self, count: int, draws: AugmentParams | None) -> list[CropBox]:
        """Return the crops of `count` images: by their parameters (count, 5), or center crops without them."""
        if draws is None:
            return [
                CropBox(
                    (1 - CENTER_FRACTION) / 2, (1 - CENTER_FRACTION) / 2, CENTER_FRACTION, CENTER_FRACTION, flipped=False
                )
            ] * count
        rectangles = torch.stack(_areas(torch.from_numpy(draws)), 1).tolist()
        mirrored = ((draws[:, 0] < 0.5) & self.flip).tolist()
        rows = zip(rectangles, mirrored, strict=True)
        return [CropBox(left, top, wide, high, mirror) for (left, top, wide, high), mirror in rows]

    def _large_enough(self, squares: Tensor) -> Tensor:
        """Resize images in memory to the square that `random_crop` needs."""
        if self.crop != "random_crop" or squares.shape[1] == self.side:
            return squares
        return _scaled(_floats(squares), self.side).permute(0, 2, 3, 1)


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


def default_transform(dataset: Dataset, size: int) -> Transform:
    """Return the default transform of a data set: `small` for images in memory, `photo` for files."""
    found = get_transform("small" if is_in_memory(dataset.images) else "photo", size)
    return replace(found, flip=dataset.flip_safe)


def draw_augment_params(images: int, seed: int, epoch: int) -> AugmentParams:
    """Return the random parameters of an epoch (images, 5), from 0 to 1: flip, row, column, area, aspect ratio."""
    return generator(seed, "augmentation", epoch).random((images, 5), dtype=np.float32)


def _windows(squares: Tensor, start: Tensor, length: int, mirrored: Tensor) -> Tensor:
    """Return crops (n, length, length, 3) from `start` (n, 2), with reflection padding and flips by indexing."""
    side = squares.shape[1]
    steps = torch.arange(length)
    rows = _reflected(start[:, :1] + steps, side)
    columns = _reflected(start[:, 1:] + torch.where(mirrored[:, None], length - 1 - steps, steps), side)
    return squares[torch.arange(len(squares))[:, None, None], rows[:, :, None], columns[:, None, :]]


def _reflected(positions: Tensor, side: int) -> Tensor:
    """Reflect positions beyond a border, without repeating the border."""
    last = side - 1
    return last - (positions.abs() - last).abs()


def _areas(draws: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return left, top, width and height (n,) of random crops, as fractions of the square."""
    area = AREA_RANGE[0] + (AREA_RANGE[1] - AREA_RANGE[0]) * draws[:, 3]
    shape = MAX_ASPECT_RATIO ** (2 * draws[:, 4] - 1)
    wide, high = (area * shape).sqrt().clamp(max=1), (area / shape).sqrt().clamp(max=1)
    return draws[:, 2] * (1 - wide), draws[:, 1] * (1 - high), wide, high


def _area_crops(images: Tensor, draws: Tensor, size: int, flip: bool) -> Tensor:
    """Return random crops (n, 3, size, size) of images (n, 3, H, H), sampled bilinearly."""
    if not len(images):
        return images.new_empty(0, 3, size, size)
    left, top, wide, high = _areas(draws)
    mirror = torch.where(draws[:, 0] < 0.5, -1.0, 1.0) if flip else torch.ones(len(images))
    theta = torch.zeros(len(images), 2, 3)
    theta[:, 0, 0], theta[:, 1, 1] = wide * mirror, high
    theta[:, 0, 2], theta[:, 1, 2] = 2 * left + wide - 1, 2 * top + high - 1
    grid = functional.affine_grid(theta, [len(images), 3, size, size], align_corners=False)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _floats(squares: Tensor) -> Tensor:
    """Return (n, H, W, 3) bytes as (n, 3, H, W) floats in the memory format channels_last."""
    return squares.permute(0, 3, 1, 2).float()


def _scaled(images: Tensor, size: int) -> Tensor:
    if images.shape[-1] == size:
        return images
    smaller = images.shape[-1] > size
    return functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False, antialias=smaller)
