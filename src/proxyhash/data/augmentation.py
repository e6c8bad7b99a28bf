"""Random crops and flips of training images, as tensor operations on a whole batch."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from proxyhash.data.crop import CropBox

if TYPE_CHECKING:
    from proxyhash.data.transforms import AugmentParams, Crop

AREA_RANGE = (0.35, 1.0)  # of `random_resized`, as a fraction of the square; smaller crops often miss the object
MAX_ASPECT_RATIO = 4 / 3  # of `random_resized`
SHIFT_DIVISOR = 8  # `pad_shift` shifts by up to 1/8 of the side: the usual 4 of CIFAR's 32 pixels


def augment(squares: Tensor, draws: Tensor, *, crop: "Crop", size: int, side: int, flip: bool) -> Tensor:
    """Return (n, 3, size, size) floats from 0 to 255, from squares (n, H, H, 3) of bytes and parameters (n, 5).

    See `Transform` for the crops; `random_crop` resizes other squares to `side` first.
    """
    if crop == "random_resized":
        return _area_crops(_floats(squares), draws, size, flip)
    if crop == "random_crop" and squares.shape[1] != side:
        squares = _scaled(_floats(squares), side).permute(0, 2, 3, 1)
    length = squares.shape[1]
    if crop == "random_crop":
        start, length = (draws[:, 1:3] * (length - size + 1)).long(), size
    elif crop == "pad_shift":
        reach = max(1, length // SHIFT_DIVISOR)
        start = (draws[:, 1:3] * (2 * reach + 1)).long() - reach
    else:
        start = torch.zeros(len(squares), 2, dtype=torch.long)
    mirrored = (draws[:, 0] < 0.5) if flip else torch.zeros(len(squares), dtype=torch.bool)
    return _scaled(_floats(_windows(squares, start, length, mirrored)), size)


def random_boxes(draws: "AugmentParams", *, flip: bool) -> list[CropBox]:
    """Return the crops `random_resized` of images by their parameters (n, 5)."""
    rectangles = torch.stack(_areas(torch.from_numpy(draws)), 1).tolist()
    mirrored = ((draws[:, 0] < 0.5) & flip).tolist()
    rows = zip(rectangles, mirrored, strict=True)
    return [CropBox(left, top, wide, high, mirror) for (left, top, wide, high), mirror in rows]


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
