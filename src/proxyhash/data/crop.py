"""Crops that are resized and flipped in one pass over the pixels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.utils.jit import cold_start, jit

NUMPY_NANOSECONDS = 40  # that `_sample_numpy` takes for a value; the compiled function takes a fifth


class CropBox(NamedTuple):
    """A rectangle in the central square of an image, as fractions of its side, and whether it is flipped."""

    left: float
    top: float
    width: float
    height: float
    flipped: bool

    def min_side(self, size: int) -> int:
        """Return the side of the square in pixels below which the crop would be enlarged to `size`."""
        return int(np.ceil(size / min(self.width, self.height)))


def sample_crop(image: Image.Image, box: CropBox, out: NDArray[np.float32]) -> None:
    """Write a crop of an RGB image to `out` (size, size, 3), floats from 0 to 255, sampled bilinearly.

    Bilinear sampling reads 2 x 2 pixels, so an image that is more than twice too large is averaged first.
    """
    shrink = int(min(image.size) / box.min_side(len(out)))
    if shrink > 1:
        image = image.reduce(shrink)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2 + box.left * side, (height - side) / 2 + box.top * side
    wide, high = box.width * side, box.height * side
    # Copying pixels out of Pillow holds the GIL, so only the pixels that are sampled are copied.
    first, above = max(0, int(left) - 1), max(0, int(top) - 1)
    near = image.crop((first, above, min(width, int(left + wide) + 2), min(height, int(top + high) + 2)))
    sample = sample_numpy if cold_start.use_numpy(1e-9 * NUMPY_NANOSECONDS * out.size) else sample_compiled
    sample(np.asarray(near), left - first, top - above, wide, high, box.flipped, out)


def sample_numpy(
    pixels: NDArray[np.uint8],
    left: float,
    top: float,
    wide: float,
    high: float,
    mirrored: bool,
    out: NDArray[np.float32],
) -> None:
    """Do the same as `sample_compiled`, to the last bit."""
    height, width, _ = pixels.shape
    steps = np.arange(len(out)) + 0.5
    rows = np.clip(top + steps * high / len(out) - 0.5, 0.0, height - 1.0)
    columns = np.clip(left + steps * wide / len(out) - 0.5, 0.0, width - 1.0)
    above, first = rows.astype(np.int64), np.minimum(columns.astype(np.int64), max(width - 2, 0))
    lower, share = (rows - above).astype(np.float32)[:, None, None], (columns - first).astype(np.float32)[:, None]
    blended = (1 - lower) * pixels[above] + lower * pixels[np.minimum(above + 1, height - 1)]
    near = blended[:, first]
    sampled = near + share * (blended[:, np.minimum(first + 1, width - 1)] - near)
    out[:] = sampled[:, ::-1] if mirrored else sampled


@jit(nogil=True)
def sample_compiled(
    pixels: NDArray[np.uint8],
    left: float,
    top: float,
    wide: float,
    high: float,
    mirrored: bool,
    out: NDArray[np.float32],
) -> None:
    """Interpolate between two rows for each row of `out`, then between two columns; the border is repeated."""
    height, width, _ = pixels.shape
    size = len(out)
    starts, weights = np.empty(size, np.int64), np.empty(size, np.float32)
    for column in range(size):
        place = min(max(left + (column + 0.5) * wide / size - 0.5, 0.0), width - 1.0)
        start = min(int(place), max(width - 2, 0))
        target = size - 1 - column if mirrored else column
        starts[target], weights[target] = 3 * start, place - start
    step = 3 if width > 1 else 0
    blended = np.empty(3 * width, np.float32)
    for row in range(size):
        place = min(max(top + (row + 0.5) * high / size - 0.5, 0.0), height - 1.0)
        start = int(place)
        lower = np.float32(place - start)
        upper = np.float32(1) - lower
        above, below = pixels[start].reshape(-1), pixels[min(start + 1, height - 1)].reshape(-1)
        for value in range(3 * width):
            blended[value] = upper * above[value] + lower * below[value]
        line = out[row]
        for column in range(size):
            first, share = starts[column], weights[column]
            for channel in range(3):
                near = blended[first + channel]
                line[column, channel] = near + share * (blended[first + step + channel] - near)
