"""Description of the pixels that a model takes, and decoding of images to them; this module does not need torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.crop import CropBox, sample_crop
from proxyhash.data.decoding import MAX_PIXELS, Fit, decode_image, resize_square


@dataclass(frozen=True)
class PixelSpec:
    """Pixels that a model takes: whole images as (side, side, 3) bytes, or crops of them as (side, side, 3) floats.

    Attributes
    ----------
    side
        Height and width in pixels.
    fit
        How a whole image is brought to a square: pressed into it (squash), or its central square (cover).
    box
        Crop of the central square; None: the whole image.

    Examples
    --------
    >>> from PIL import Image
    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30)).save(file, "PNG")
    >>> pixels = PixelSpec(16, "cover").decode(file)
    >>> pixels.shape, pixels.dtype
    ((16, 16, 3), dtype('uint8'))
    """

    side: int
    fit: Fit = "squash"
    box: CropBox | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return the shape of one image."""
        return self.side, self.side, 3

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type of the pixels."""
        return np.dtype(np.uint8 if self.box is None else np.float32)

    def decode(
        self, file: Path | BinaryIO, *, name: str | None = None, max_pixels: int = MAX_PIXELS
    ) -> NDArray[np.uint8] | NDArray[np.float32]:
        """Return the pixels (side, side, 3) of an image file; errors call it by its path, or by a `name`.

        Raises
        ------
        UnreadableImageError
            If the file cannot be decoded, or has more than `max_pixels` pixels.
        """
        if self.box is None:
            image = decode_image(file, self.side, name=name, max_pixels=max_pixels)
            return resize_square(image, self.side, self.fit)
        image = decode_image(file, self.box.min_side(self.side), name=name, max_pixels=max_pixels)
        out = np.empty(self.shape, np.float32)
        sample_crop(image, self.box, out)
        return out
