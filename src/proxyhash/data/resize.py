"""Bilinear resizing of batches of square images, for evaluation.

Results do not depend on the machine, the batch or the number of threads: torch and onnxruntime get the same pixels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.jit import jit
from proxyhash.utils.parallel import over_slices

SLICE = 8  # images that a thread resizes at once

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def resize(images: NDArray[Any], size: int) -> Floats:
    """Return images (n, H, H, 3) as floats (n, size, size, 3), sampled bilinearly; shrinking averages (antialiasing).

    Parameters
    ----------
    images
        Bytes or floats (n, H, H, 3).
    size
        Height and width of the results.

    Examples
    --------
    >>> image = np.zeros((1, 2, 2, 3), np.uint8)
    >>> image[:, 1] = 100
    >>> resize(image, 4)[0, :, 0, 0].tolist()
    [0.0, 25.0, 75.0, 100.0]
    """
    if images.shape[1] == size:
        return images.astype(np.float32)
    first, weights = triangle_filter(images.shape[1], size)
    resized = np.empty((len(images), size, size, 3), np.float32)
    contiguous = np.ascontiguousarray(images)
    over_slices(len(images), SLICE, lambda part: _resize(contiguous[part], first, weights, resized[part]))
    return resized


def triangle_filter(side: int, size: int) -> tuple[Ints, Floats]:
    """Return the first pixel (size,) that each of `size` outputs reads of `side` pixels, and its weights (size, taps).

    Examples
    --------
    >>> first, weights = triangle_filter(2, 4)
    >>> first.tolist(), weights.tolist()
    ([0, 0, 0, 0], [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]])
    """
    scale = side / size
    reach = max(1.0, scale)  # pixels on each side of a center that have a weight
    centers = (np.arange(size) + 0.5) * scale
    taps = min(side, int(np.ceil(2 * reach)))
    first = np.clip(np.ceil(centers - reach - 0.5).astype(np.int64), 0, side - taps)
    distances = np.abs(first[:, None] + np.arange(taps) + 0.5 - centers[:, None])
    weights = np.maximum(0, 1 - distances / reach)
    return first, (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@jit(nogil=True)
def _resize(images: NDArray[Any], first: Ints, weights: Floats, out: Floats) -> None:
    """Blend rows of an image for each row of `out`, then columns."""
    size, taps = weights.shape
    blended = np.empty(images.shape[2] * 3, np.float32)
    for image in range(len(images)):
        for row in range(size):
            blended[:] = 0
            for tap in range(taps):
                weight, line = weights[row, tap], images[image, first[row] + tap].reshape(-1)
                for value in range(len(blended)):
                    blended[value] += weight * np.float32(line[value])
            for column in range(size):
                start = 3 * first[column]
                for channel in range(3):
                    total = np.float32(0)
                    for tap in range(taps):
                        total += weights[column, tap] * blended[start + 3 * tap + channel]
                    out[image, row, column, channel] = total
