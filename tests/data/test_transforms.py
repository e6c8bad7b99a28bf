"""Each transform against a slow one that handles a single image at a time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional

from helpers.datasets import labeled_dataset
from helpers.images import smooth_image
from proxyhash.data import Dataset
from proxyhash.data.images import ArrayImages, FileImages
from proxyhash.data.transforms import (
    Transform,
    default_transform,
    draw_augment_params,
    get_transform,
    list_transforms,
)
from proxyhash.utils.errors import InputError

Floats = NDArray[np.float64]


def squares(count: int, side: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([smooth_image(seed, side, side) for seed in range(count)]))


def scaled(image: Floats, size: int) -> Floats:
    """One image (H, H, 3) at another size, bilinearly, with Pillow's rule when it shrinks."""
    channels = [Image.fromarray(image[..., channel].astype(np.float32)) for channel in range(3)]
    if size < len(image):
        return np.stack([np.asarray(c.resize((size, size), Image.Resampling.BILINEAR)) for c in channels], 2)
    tensor = torch.from_numpy(image.copy()).permute(2, 0, 1)[None]
    return functional.interpolate(tensor, size=size, mode="bilinear", align_corners=False)[0].permute(1, 2, 0).numpy()


def slow(transform: Transform, image: NDArray[np.uint8], draw: NDArray[np.float32]) -> Floats:
    """Reference implementation of `for_training` for one image."""
    pixels = image.astype(np.float64)
    if transform.crop == "random_crop":
        pixels = scaled(pixels, transform.side) if len(pixels) != transform.side else pixels
        row, column = (int(value * (transform.side - transform.size + 1)) for value in draw[1:3])
        pixels = pixels[row : row + transform.size, column : column + transform.size]
    elif transform.crop == "pad_shift":
        side, reach = len(pixels), len(pixels) // 8
        padded = np.pad(pixels, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
        row, column = (int(value * (2 * reach + 1)) for value in draw[1:3])
        pixels = padded[row : row + side, column : column + side]
    if draw[0] < 0.5:
        pixels = pixels[:, ::-1]
    return scaled(pixels, transform.size) if len(pixels) != transform.size else pixels


@pytest.mark.parametrize(
    ("transform", "side"),
    [
        (get_transform("small", 32), 32),
        (get_transform("small", 48), 16),
        (get_transform("small", 20), 32),
        (get_transform("paper-cifar"), 32),
        (Transform("mini", "", 24, 32, crop="random_crop"), 32),
        (Transform("mini", "", 24, 32, crop="random_crop"), 16),
        (get_transform("paper-256"), 256),
    ],
    ids=lambda value: value.name if isinstance(value, Transform) else str(value),
)
def test_batches_are_what_single_images_give(transform: Transform, side: int) -> None:
    images, draws = squares(6, side), draw_augment_params(6, 3, 1)
    found = transform.augment(images, torch.from_numpy(draws)).permute(0, 2, 3, 1).numpy()
    assert found.shape == (6, transform.size, transform.size, 3)
    assert found.dtype == np.float32
    for image, draw, result in zip(images.numpy(), draws, found, strict=True):
        np.testing.assert_allclose(result, slow(transform, image, draw), atol=0.01)
    assert {bool(draw[0] < 0.5) for draw in draws} == {True, False}  # both were tried


def test_extreme_draws_stay_inside() -> None:
    images = squares(2, 32)
    draws = torch.tensor([[0.0] * 5, [float(np.nextafter(np.float32(1), np.float32(0)))] * 5])
    for transform in (get_transform("small", 32), Transform("mini", "", 24, 32, crop="random_crop")):
        found = transform.augment(images, draws).permute(0, 2, 3, 1).numpy()
        for image, draw, result in zip(images.numpy(), draws.numpy(), found, strict=True):
            np.testing.assert_allclose(result, slow(transform, image, draw), atol=0.01)


@pytest.mark.parametrize(
    ("transform", "side", "kept"),
    [
        (get_transform("small", 32), 32, 32),
        (get_transform("paper-cifar"), 32, 32),
        (Transform("mini", "", 24, 32, crop="random_crop"), 32, 24),
        (get_transform("photo", 28), 32, 28),
        (get_transform("photo", 28), 64, 56),
    ],
)
def test_testing_takes_the_center_and_is_not_random(transform: Transform, side: int, kept: int) -> None:
    images = squares(3, side)
    first = (side - kept) // 2
    found = transform.preprocess(images.numpy()).transpose(0, 2, 3, 1)
    for image, result in zip(images.numpy(), found, strict=True):
        center = image[first : first + kept, first : first + kept].astype(np.float64)
        np.testing.assert_allclose(result, scaled(center, transform.size) if kept != transform.size else center, atol=0.01)


def test_an_area_crop_is_the_part_that_was_drawn() -> None:
    rows, columns = np.mgrid[:64, :64].astype(np.uint8)
    image = torch.from_numpy(np.stack([rows, columns, np.zeros_like(rows)], 2))[None]
    transform = get_transform("photo", 16)
    area, shape = 0.35 + 0.65 * 0.2, (4 / 3) ** (2 * 0.7 - 1)
    wide, high = 64 * (area * shape) ** 0.5, 64 * (area / shape) ** 0.5
    top, left = 0.25 * (64 - high), 0.5 * (64 - wide)
    places = (np.arange(16) + 0.5) / 16
    for mirror in (0.9, 0.1):
        found = transform.augment(image, torch.tensor([[mirror, 0.25, 0.5, 0.2, 0.7]]))[0].numpy()
        across = left + wide * places - 0.5
        np.testing.assert_allclose(found[1, 5], across[::-1] if mirror < 0.5 else across, atol=0.01)
        np.testing.assert_allclose(found[0, :, 5], top + high * places - 0.5, atol=0.01)


@pytest.mark.parametrize("name", list_transforms())
def test_an_image_does_not_depend_on_its_batch(name: str) -> None:
    transform = get_transform(name)
    images, draws = squares(5, 32), torch.from_numpy(draw_augment_params(5, 0, 0))
    together = transform.augment(images, draws)
    alone = torch.cat([transform.augment(images[i : i + 1], draws[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, alone)
    assert together.shape == (5, 3, transform.size, transform.size)
    assert together.min() >= 0
    assert together.max() <= 255.001
    assert transform.augment(images[:0], draws[:0]).shape == (0, 3, transform.size, transform.size)
    assert transform.preprocess(images[:0].numpy()).shape == (0, 3, transform.size, transform.size)


def test_draws_belong_to_seed_and_epoch() -> None:
    draws = draw_augment_params(100, 7, 2)
    assert draws.shape == (100, 5)
    assert draws.dtype == np.float32
    assert draws.min() >= 0
    assert draws.max() < 1
    np.testing.assert_array_equal(draws, draw_augment_params(100, 7, 2))
    for other in (draw_augment_params(100, 7, 3), draw_augment_params(100, 8, 2)):
        assert not np.array_equal(draws, other)


@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [(96, 0.5, 64), (96, 0.8, 80), (96, 0.97, 96), (96, 1.0, 96), (224, 0.5, 112), (100, 1.0, 100), (32, 0.5, 32)],
)
def test_smaller_images_have_sides_that_networks_can_halve(size: int, share: float, expected: int) -> None:
    assert get_transform("small", size).resized(share).size == expected


def test_a_smaller_image_shows_the_same_part() -> None:
    photo = get_transform("photo", 224)
    half = photo.resized(0.5)
    assert (half.size, half.side) == (112, 128)
    square, draws = squares(1, 256), torch.rand(1, 5, generator=torch.Generator().manual_seed(0))
    large = functional.interpolate(photo.augment(square, draws), size=112, mode="area")
    assert (half.augment(square, draws) - large).abs().mean() < 4


def test_transforms_by_name() -> None:
    assert list_transforms() == ["paper-cifar", "paper-256", "small", "photo"]
    assert (get_transform("photo").size, get_transform("photo").side) == (224, 256)
    assert (get_transform("photo", 96).side, get_transform("small", 64).side) == (110, 64)
    small = labeled_dataset("x", np.zeros(3, int))
    assert (default_transform(small, 96).name, default_transform(small, 96).flip) == ("small", True)
    assert not default_transform(replace(small, flip_safe=False), 96).flip
    assert default_transform(Dataset("x", FileImages(Path(), ["a.png"])), 96).name == "photo"
    assert isinstance(labeled_dataset("x", np.zeros(3, int)).images, ArrayImages)
    for name, size, sentence in (
        ("smal", None, "There is no transform 'smal'; did you mean small?"),
        ("xyz", None, "choose from paper-cifar, paper-256, small, photo."),
        ("paper-256", 224, "The transform paper-256 gives 227 pixels, not 224: that is the paper's."),
        ("small", 0, "The size of an image must be at least 1, not 0."),
    ):
        with pytest.raises(InputError) as raised:
            get_transform(name, size)
        assert sentence in str(raised.value)
