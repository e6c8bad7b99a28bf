"""Images that other libraries hold as objects: Pillow images, arrays and tensors."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.data.crop import CropBox, sample_crop
from proxyhash.data.decoding import Fit, Pixels, UnreadableImageError, describe_error, resize_square, upright_rgb
from proxyhash.data.images import Indices

CHANNELS = (1, 3, 4)  # gray, RGB, RGBA


def to_image(item: Any, name: str) -> Image.Image:
    """Return an image object as an upright Pillow image of mode RGB.

    Parameters
    ----------
    item
        A Pillow image, an array (H, W) or (H, W, C), or a tensor (H, W) or (C, H, W); C is 1, 3 or 4. Numbers are bytes, or
        floats from 0 to 1.
    name
        The name of the image in errors.

    Raises
    ------
    UnreadableImageError
        For anything else, and for a Pillow image that cannot be decoded.

    Examples
    --------
    >>> to_image(np.zeros((4, 6, 3), np.uint8), "black").size
    (6, 4)
    """
    if isinstance(item, Image.Image):
        try:
            return upright_rgb(item)
        except Exception as error:  # a lazy image is decoded here, and decoders raise nearly anything
            raise UnreadableImageError(name, f"cannot be decoded ({describe_error(error)})") from error
    if hasattr(item, "detach"):  # a tensor, without an import of torch
        values = item.detach().cpu().numpy()
        values = np.moveaxis(values, 0, -1) if values.ndim == 3 else values
    elif isinstance(item, np.ndarray):
        values = item
    else:
        raise UnreadableImageError(name, f"is a {type(item).__name__}, and an image is one of Pillow, an array or a tensor")
    if values.ndim not in {2, 3} or (values.ndim == 3 and values.shape[2] not in CHANNELS) or not values.size:
        layout = "(C, H, W)" if hasattr(item, "detach") else "(H, W, C)"
        raise UnreadableImageError(name, f"has the shape {tuple(item.shape)}, and an image has {layout}, C being 1, 3 or 4")
    pixels = _bytes(values, name)
    pixels = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return upright_rgb(Image.fromarray(np.ascontiguousarray(pixels)))


def _bytes(values: NDArray[Any], name: str) -> Pixels:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind != "f":
        raise UnreadableImageError(name, f"has numbers of the type {values.dtype}, and images are uint8 or floats")
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):  # also for NaN
        found = f"has floats from {low:.3g} to {high:.3g}"
        raise UnreadableImageError(name, f"{found}, and images are from 0 to 1; leave the normalization out")
    return np.round(values * 255).astype(np.uint8)


class ImageObjects(ABC):
    """N images that are decoded one by one to Pillow images; an `Images` but for the source."""

    @abstractmethod
    def __len__(self) -> int:
        """Return N."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the name of an image."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return digits that change when an image does."""

    @abstractmethod
    def image(self, index: int, min_side: int | None = None) -> Image.Image:
        """Return an image of mode RGB, or raise an `UnreadableImageError`; a JPEG may be smaller, down to `min_side`."""

    def read(self, index: int) -> Pixels:
        """Return the pixels (H, W, 3)."""
        return np.asarray(self.image(index))

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Return the image as (side, side, 3)."""
        return resize_square(self.image(index, side), side, fit)

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Write a crop of the image to `out` (size, size, 3)."""
        sample_crop(self.image(index, box.min_side(len(out))), box, out)

    def pixels_in_memory(self, indices: Indices) -> None:  # noqa: ARG002
        """Return None: images are decoded one by one."""
        return
