"""Principal directions of features, of which ITQ and random rotations make codes."""

from contextlib import nullcontext

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.encoders import Floats
from proxyhash.utils.errors import InputError
from proxyhash.utils.parallel import available_threads, ordered_map, single_threaded_blas

CHUNK_ROWS = 8192


def moments(features: Floats, chunk: int = CHUNK_ROWS) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (q,) and covariance (q, q) of features (N, q), which are read once.

    Chunks are centered at s, the mean of the first one, so that float32 holds their products:
    sum (x - m)(x - m)' = sum (x - s)(x - s)' - N (m - s)(m - s)'. The result does not depend on the number of threads.
    """
    first = np.asarray(features[:chunk])
    shift = first.mean(0, dtype=np.float64).astype(np.float32)

    def solve(begin: int) -> tuple[NDArray[np.float64], Floats]:
        values = np.asarray(features[begin : begin + chunk] if begin else first, np.float32)
        centered = values - shift
        return values.sum(0, dtype=np.float64), centered.T @ centered

    starts = range(0, len(features), chunk)
    total, scatter = np.zeros(len(shift)), np.zeros((len(shift), len(shift)))
    with single_threaded_blas() if len(starts) > 1 else nullcontext():
        for sums, products in ordered_map(solve, starts, min(available_threads(), len(starts))):
            total += sums
            scatter += products
    mean = total / len(features)
    return mean, scatter / len(features) - np.outer(mean - shift, mean - shift)


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
