"""Image objects of other libraries, as RGB images."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.image_objects import to_image

SHAPES = st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3))


@given(arrays(np.uint8, SHAPES))
def test_all_forms_of_an_image_give_the_same_pixels(pixels: Any) -> None:
    channels_first = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    for item in (pixels, Image.fromarray(pixels), channels_first, channels_first.float() / 255, pixels / 255):
        np.testing.assert_array_equal(np.asarray(to_image(item, "x")), pixels)


def test_gray_and_transparent_images_become_rgb() -> None:
    gray = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for item in (gray, gray[:, :, None], torch.from_numpy(gray), torch.from_numpy(gray)[None]):
        np.testing.assert_array_equal(np.asarray(to_image(item, "x")), np.repeat(gray[:, :, None], 3, 2))
    assert np.asarray(to_image(np.zeros((2, 2, 4), np.uint8), "x")).min() == 255  # transparent over white


def test_pillow_images_are_made_upright() -> None:
    image = Image.new("RGB", (4, 2))
    image.getexif()[0x0112] = 6  # turned by a quarter
    assert to_image(image, "x").size == (2, 4)


def test_a_lazy_image_with_damaged_bytes_is_unreadable() -> None:
    buffer = BytesIO()
    Image.effect_noise((64, 64), 90).save(buffer, "PNG")
    lazy = Image.open(BytesIO(buffer.getvalue()[:500]))
    with pytest.raises(UnreadableImageError, match="x cannot be decoded"):
        to_image(lazy, "x")


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("photo.jpg", "is a str"),
        (np.zeros((3, 8, 8), np.uint8), r"has the shape \(3, 8, 8\), and an image has \(H, W, C\)"),
        (torch.zeros(8, 8, 3), r"has the shape \(8, 8, 3\), and an image has \(C, H, W\)"),
        (np.zeros((0, 8, 3), np.uint8), "has the shape"),
        (np.zeros((8, 8, 3), np.int64), "has numbers of the type int64"),
        (np.full((8, 8, 3), -1.5), r"has floats from -1.5 to -1.5, and images are from 0 to 1; leave the normalization out"),
        (np.full((8, 8, 3), np.nan), "has floats from nan to nan"),
    ],
)
def test_other_objects_are_refused_with_the_reason(item: Any, reason: str) -> None:
    with pytest.raises(UnreadableImageError, match=reason):
        to_image(item, "x")
