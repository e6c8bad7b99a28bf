"""Resizing against torch and Pillow."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.nn import functional

from proxyhash.data.resize import resize, triangle_filter

TOLERANCE = 0.02  # of 255: torch computes the positions with 32 bits


@pytest.mark.parametrize(
    ("side", "size"),
    [
        (32, 96),
        (32, 227),
        (32, 33),
        (28, 224),
        (100, 99),
        (300, 224),
        (256, 112),
        (64, 28),
        (97, 16),
        (5, 1),
        (1, 5),
        (7, 7),
    ],
)
def test_resizing_is_torch_s_to_rounding(side: int, size: int) -> None:
    images = np.random.default_rng(side).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    expected = functional.interpolate(tensor, (size, size), mode="bilinear", align_corners=False, antialias=side > size)
    for given_images in (images, images.astype(np.float32), images[:, ::-1][:, ::-1]):
        found = resize(given_images, size)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize(("side", "size"), [(32, 96), (300, 224), (64, 28)])
def test_resizing_is_pillow_s_to_rounding(side: int, size: int) -> None:
    image = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    channels = [Image.fromarray(image[..., channel].astype(np.float32)) for channel in range(3)]
    expected = np.stack([np.asarray(each.resize((size, size), Image.Resampling.BILINEAR)) for each in channels], 2)
    np.testing.assert_allclose(resize(image[None], size)[0], expected, atol=TOLERANCE)


@given(st.integers(1, 300), st.integers(1, 300))
def test_weights_of_each_pixel_sum_to_one_and_stay_inside(side: int, size: int) -> None:
    first, weights = triangle_filter(side, size)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert first.min() >= 0
    assert first.max() + weights.shape[1] <= side
    assert weights.min() >= 0


def test_an_image_does_not_depend_on_its_batch() -> None:
    images = np.random.default_rng(0).integers(0, 256, (20, 20, 20, 3), dtype=np.uint8)
    alone = [resize(image[None], 50) for image in images]
    np.testing.assert_array_equal(resize(images, 50), np.concatenate(alone))
    assert resize(images[:0], 50).shape == (0, 50, 50, 3)
