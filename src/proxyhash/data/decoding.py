"""Decoding of image files to upright RGB pixels."""

from io import SEEK_END, BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from proxyhash.data.crop import CropBox, sample_crop
from proxyhash.utils.errors import InputError

Pixels = NDArray[np.uint8]
Fit = Literal["squash", "cover"]

# Pillow only warns between this limit and twice the limit; here, all images above it are refused.
MAX_PIXELS = Image.MAX_IMAGE_PIXELS or 89_478_485

EXTENSIONS = frozenset(
    ".jpg .jpeg .jpe .jfif .png .webp .bmp .gif .tif .tiff .ppm .pgm .pbm .pnm .jp2 .avif".split()  # noqa: SIM905
)

# The formats of these extensions. Pillow knows more, but it would decode PostScript by running Ghostscript.
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")

_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


UNREADABLE = "unreadable image"
EMPTY = "empty file"


class UnreadableImageError(InputError):
    """An image file that cannot be decoded; the message names it and says why, `reason` is the latter alone.

    `kind` is what it is counted as where images are left out.
    """

    def __init__(self, path: Path | str, reason: str, kind: str = UNREADABLE) -> None:
        """Make the sentence."""
        super().__init__(f"{path} {reason}.")
        self.reason, self.kind = reason, kind


class NamedBytes(BytesIO):
    """An image file inside another file, with a name for errors."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name

    def __str__(self) -> str:
        """Return the name, for errors."""
        return str(self.name)


def decode_image(
    path: Path | BinaryIO, min_side: int | None = None, *, name: str | None = None, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Return the image as an upright one of mode RGB; errors call it by its path, or by a `name`.

    A JPEG may be decoded at a half, a quarter or an eighth of its size if both sides stay at or above `at_least`: its
    coefficients are simply not all used, which is several times faster. More than `most` pixels are refused.
    """
    called = name or str(path)
    try:
        with Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise Image.DecompressionBombError  # noqa: TRY301  Pillow raises it here too
            if min_side is not None:
                image.draft("RGB", (min_side, min_side))
            image.load()
            return upright_rgb(image)
    except FileNotFoundError:
        raise UnreadableImageError(called, "is not there") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnreadableImageError(called, f"has more than {max_pixels:,} pixels, which is refused") from None
    except Exception as error:  # damaged bytes make decoders raise nearly anything: struct.error, SyntaxError, IndexError
        if _is_empty(path):
            raise UnreadableImageError(called, "is empty", EMPTY) from None
        raise UnreadableImageError(called, f"cannot be decoded as an image ({describe_error(error)})") from error


def upright_rgb(image: Image.Image) -> Image.Image:
    """Return a decoded image of any mode as an upright one of mode RGB."""
    upright = _UPRIGHT.get(_orientation(image))
    rgb = _rgb(image)
    return rgb if upright is None else rgb.transpose(upright)


def decode_pixels(path: Path | NamedBytes) -> Pixels:
    """Return an image's pixels (H, W, 3)."""
    return np.asarray(decode_image(path))


def decode_square(path: Path | NamedBytes, side: int, fit: Fit) -> Pixels:
    """Return an image file as (side, side, 3)."""
    return resize_square(decode_image(path, min_side=side), side, fit)


def decode_crop(path: Path | NamedBytes, box: CropBox, out: NDArray[np.float32]) -> None:
    """Write a part of an image file to `out` (size, size, 3)."""
    sample_crop(decode_image(path, min_side=box.min_side(len(out))), box, out)


def resize_square(image: Image.Image, side: int, fit: Fit) -> Pixels:
    """Return an image as (side, side, 3): all of it pressed into the square (squash), or its central square (cover)."""
    width, height = image.size
    short = min(width, height)
    left, top = (width - short) / 2, (height - short) / 2
    box = (left, top, left + short, top + short) if fit == "cover" else (0, 0, width, height)
    return np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:
        return 1


def _rgb(image: Image.Image) -> Image.Image:
    """Convert any mode to RGB: deep grays by their high byte, transparency over white."""
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bits(np.asarray(image), image.mode)).convert("RGB")
    if image.mode in {"RGBA", "LA", "PA", "RGBa", "La"} or "transparency" in image.info:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image if image.mode == "RGB" and not image.readonly else image.convert("RGB")


def _eight_bits(gray: NDArray[np.generic], mode: str) -> Pixels:
    """Return deep grays as bytes: 16 bits by the high byte; numbers of no fixed range by what their largest one suggests."""
    values = np.nan_to_num(gray.astype(np.float64))
    largest = values.max(initial=0)
    if mode == "F":
        values = values * 255 if largest <= 1 else values
    elif mode != "I" or largest > 255:
        values = values / 256
    return values.clip(0, 255).astype(np.uint8)


def _is_empty(path: Path | BinaryIO) -> bool:
    """Return whether a file that could not be decoded has no bytes."""
    try:
        return (path.stat().st_size if isinstance(path, Path) else path.seek(0, SEEK_END)) == 0
    except (OSError, ValueError):  # it cannot be looked at, or the stream is closed
        return False


def describe_error(error: Exception) -> str:
    """Return what a decoder complains about, in a few words."""
    if isinstance(error, UnidentifiedImageError):
        return "its format is not recognized"
    text = " ".join((getattr(error, "strerror", None) or str(error)).split()) or type(error).__name__
    return text[:120].rstrip(".")
