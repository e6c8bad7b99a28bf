"""Collections of images in memory or in files."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.data.crop import CropBox, sample_crop
from proxyhash.data.decoding import Fit, Pixels, decode_crop, decode_pixels, decode_square, resize_square
from proxyhash.utils.errors import InputError

Indices = NDArray[np.int64]
SESSION = "session-"  # start of fingerprints of images whose content is not known: they hold for this process only


class Images(Protocol):
    """N images that can be read one at a time, from several threads at once."""

    def __len__(self) -> int:
        """Return N."""
        ...

    def key(self, index: int) -> str:
        """Return the name of an image, the same in every run."""
        ...

    def read(self, index: int) -> Pixels:
        """Return the pixels (H, W, 3) of an image."""
        ...

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Return an image as (side, side, 3)."""
        ...

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Write a crop of an image to `out` (size, size, 3)."""
        ...

    def pixels_in_memory(self, indices: Indices) -> Pixels | None:
        """Return the pixels of images in memory (n, H, W, 3), or None if they must be read one by one."""
        ...

    def fingerprint(self) -> str:
        """Return digits that change when an image does, as a key for caches; see `SESSION`."""
        ...


def is_in_memory(images: Images) -> bool:
    """Return whether the pixels are in memory."""
    return len(images) > 0 and images.pixels_in_memory(np.zeros(1, np.int64)) is not None


@dataclass(frozen=True)
class ArrayImages:
    """Square images of one size in memory, `pixels` (N, H, H, 3)."""

    pixels: Pixels
    prefix: str = "image"

    def __post_init__(self) -> None:
        """Check the shape and the type."""
        shape = self.pixels.shape
        if self.pixels.dtype != np.uint8 or len(shape) != 4 or shape[1] != shape[2] or shape[3] != 3:
            raise InputError(f"Images in memory must be bytes (N, side, side, 3), not {self.pixels.dtype} {shape}.")

    def __len__(self) -> int:
        """Return N."""
        return len(self.pixels)

    def key(self, index: int) -> str:
        """Return a numbered name."""
        return f"{self.prefix}-{index:06d}"

    def read(self, index: int) -> Pixels:
        """Return the pixels (H, W, 3)."""
        pixels: Pixels = self.pixels[index]
        return pixels

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Return the image as (side, side, 3)."""
        return resize_square(Image.fromarray(self.pixels[index]), side, fit)

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Write a crop of the image to `out` (size, size, 3)."""
        sample_crop(Image.fromarray(self.pixels[index]), box, out)

    def pixels_in_memory(self, indices: Indices) -> Pixels:
        """Return the pixels (n, H, W, 3); the transform resizes them a whole batch at once."""
        return self.pixels[indices]

    def fingerprint(self) -> str:
        """Hash the pixels."""
        return hashlib.blake2b(np.ascontiguousarray(self.pixels).data, digest_size=16).hexdigest()


@dataclass(frozen=True)
class FileImages:
    """Image files under `root`; `names` are their paths relative to it, with forward slashes."""

    root: Path
    names: Sequence[str]

    def __len__(self) -> int:
        """Return N."""
        return len(self.names)

    def key(self, index: int) -> str:
        """Return the path relative to the root."""
        return self.names[index]

    def path(self, index: int) -> Path:
        """Return where the file is."""
        return self.root / self.names[index]

    def read(self, index: int) -> Pixels:
        """Decode the whole image (H, W, 3)."""
        return decode_pixels(self.path(index))

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Decode the image as (side, side, 3)."""
        return decode_square(self.path(index), side, fit)

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Decode a crop of the image to `out` (size, size, 3)."""
        decode_crop(self.path(index), box, out)

    def pixels_in_memory(self, indices: Indices) -> None:  # noqa: ARG002
        """Return None: files are decoded one by one."""
        return

    def fingerprint(self) -> str:
        """Hash the names, sizes and modification times of the files, which is faster than their bytes."""
        digest = hashlib.blake2b(digest_size=16)
        for name in self.names:
            try:
                stat = (self.root / name).stat()
                text = f"{name}:{(stat.st_size, stat.st_mtime_ns)};"
            except (OSError, ValueError):  # it is not there, or the name is none: too long, or with a NUL
                text = f"{name}:None;"
            digest.update(text.encode(errors="surrogateescape"))  # names may be any bytes
        return digest.hexdigest()


@dataclass(frozen=True)
class Subset:
    """Some of the images of another collection."""

    images: Images
    indices: Indices

    def __len__(self) -> int:
        """Return N."""
        return len(self.indices)

    def key(self, index: int) -> str:
        """Return the name of the image in the other collection."""
        return self.images.key(int(self.indices[index]))

    def read(self, index: int) -> Pixels:
        """Return the pixels (H, W, 3)."""
        return self.images.read(int(self.indices[index]))

    def read_square(self, index: int, side: int, fit: Fit) -> Pixels:
        """Return the image as (side, side, 3)."""
        return self.images.read_square(int(self.indices[index]), side, fit)

    def read_crop(self, index: int, box: CropBox, out: NDArray[np.float32]) -> None:
        """Write a crop of the image to `out` (size, size, 3)."""
        self.images.read_crop(int(self.indices[index]), box, out)

    def pixels_in_memory(self, indices: Indices) -> Pixels | None:
        """Return the pixels of images in memory, or None."""
        return self.images.pixels_in_memory(self.indices[indices])

    def fingerprint(self) -> str:
        """Hash the indices, with the fingerprint of the other collection."""
        chosen = hashlib.blake2b(np.ascontiguousarray(self.indices, "<i8").data, digest_size=16).hexdigest()
        return f"{self.images.fingerprint()}-{chosen}"
