"""Principal directions of features, of which ITQ and random rotations make codes."""

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.encoders import Floats
from proxyhash.utils.errors import InputError


def moments(features: Floats, chunk: int = 8192) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (q,) and covariance (q, q) of features (N, q), computed in chunks."""
    mean = np.asarray(features.mean(0, dtype=np.float64))
    covariance = np.zeros((len(mean), len(mean)))
    for first in range(0, len(features), chunk):
        centered = features[first : first + chunk] - mean.astype(np.float32)
        covariance += centered.T @ centered
    return mean, covariance / len(features)


def principal_directions(features: Floats, count: int, title: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean (q,) of features (N, q) and their first principal directions (q, count), the last one first.

    Raises
    ------
    InputError
        If there are fewer directions; the message names the method by its `title`.
    """
    width = features.shape[1]
    if count > width:
        raise InputError(f"{title} finds at most {width} principal components, not {count} bits; lsh takes any number.")
    mean, covariance = moments(features)
    _, directions = scipy.linalg.eigh(covariance, subset_by_index=(width - count, width - 1))
    return mean, directions
