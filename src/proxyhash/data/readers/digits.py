"""Handwritten digits that come with scikit-learn: real images, no download."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import ArrayImages
from proxyhash.labels import ClassLabels
from proxyhash.utils.errors import InputError


def load_digits() -> Dataset:
    """Return 1,797 images of 8 x 8 pixels; their 17 shades of gray become bytes in three equal channels."""
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise InputError("The digits come with scikit-learn: pip install 'proxyhash[digits]'.") from None
    digits = load()
    gray = np.round(digits.images * (255 / 16)).astype(np.uint8)
    labels = ClassLabels(digits.target.astype(np.int64), tuple(str(name) for name in digits.target_names))
    pixels = np.repeat(gray[..., None], 3, axis=3)
    return Dataset("digits", ArrayImages(pixels, "digits"), labels, flip_safe=False)
