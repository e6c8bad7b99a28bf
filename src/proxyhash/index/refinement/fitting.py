"""Fit of refiners without labels: PCA and ITQ for codes, PCA and a common scale for int8 values."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from proxyhash.index.queries import Features
from proxyhash.index.refinement.refiner import MAX_VALUE, MAX_WIDTH, Kind, Refiner
from proxyhash.proxies.alignment import itq_rotation
from proxyhash.proxies.geometry import random_rotation
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator, permutation

MAX_FITTED = 20_000  # items that a refiner is fitted on
MAX_ROTATED = 1 << 20  # values that the rotation of ITQ is fitted on: 8,192 items of 128 bits
ITQ_ITERATIONS = 50  # as in the paper
CLIPPED_PERCENTILE = 99.99  # of the absolute values; beyond it int8 values are clipped

Floats = NDArray[np.float32]
Matrix = NDArray[np.float64]


def fit_refiner(features: Features, kind: Kind) -> Refiner:
    """Fit a refiner on features (n, num_features), or a random sample of `MAX_FITTED` of them; no labels are used.

    Raises
    ------
    InputError
        If there are fewer than two items.

    Examples
    --------
    >>> features = np.random.default_rng(0).normal(size=(500, 200)).astype(np.float32)
    >>> fit_refiner(features, "code").encode(features).shape  # 128 bits
    (500, 16)
    >>> fit_refiner(features, "int8").encode(features).dtype
    dtype('int8')
    """
    if len(features) < 2:
        raise InputError("A refinement is fitted on at least two items.")
    chosen = permutation(len(features), 0, "refinement")[:MAX_FITTED]
    sample = np.asarray(features[chosen], np.float32)
    mean = sample.mean(0, dtype=np.float64).astype(np.float32)
    centered = sample - mean
    directions = _principal_directions(centered, min(MAX_WIDTH[kind], sample.shape[1]))
    if kind.startswith("int8"):
        projection = _to_half(directions)
        return Refiner(kind, mean, projection, _step(centered @ projection), len(sample))
    if sample.shape[1] < MAX_WIDTH[kind]:  # more bits than directions: random ones between them
        frame = random_rotation(MAX_WIDTH[kind], generator(0, "refinement"))[: sample.shape[1]]
        return Refiner(kind, mean, _to_half(directions @ frame), 1.0, len(sample))
    projected = centered[: MAX_ROTATED // directions.shape[1]] @ directions.astype(np.float32)
    scale = float(np.sqrt(np.square(projected).mean())) or 1.0  # signs do not depend on it
    start = random_rotation(directions.shape[1], generator(0, "refinement"))
    rotation = itq_rotation(projected.astype(np.float64) / scale, start, ITQ_ITERATIONS)
    return Refiner(kind, mean, _to_half(directions @ rotation.matrix), 1.0, len(sample))


def _principal_directions(centered: Floats, count: int) -> Matrix:
    """Return orthonormal directions (num_features, count) of the largest variance, the largest first.

    If there are fewer items than directions, the further ones are random: they separate items that are added later.
    """
    rows, width = centered.shape
    if rows >= width:
        covariance = (centered.T @ centered).astype(np.float64)
        _, vectors = eigh(covariance, subset_by_index=(width - count, width - 1))
        return np.ascontiguousarray(vectors[:, ::-1])
    kept = min(count, rows)
    values, vectors = eigh((centered @ centered.T).astype(np.float64), subset_by_index=(rows - kept, rows - 1))
    found = centered.T.astype(np.float64) @ vectors[:, ::-1]
    positive = values[::-1] > 1e-9 * max(float(values[-1]), 1e-30)  # the centered rows sum to 0, so that one value is 0
    random = generator(0, "refinement directions").normal(size=(width, count - int(positive.sum())))
    directions, _ = np.linalg.qr(np.concatenate([found[:, positive], random], axis=1))
    return directions


def _step(projected: Floats) -> float:
    """Return the step of int8 values: one for all values, so that distances keep their proportions."""
    return float(np.percentile(np.abs(projected), CLIPPED_PERCENTILE)) / MAX_VALUE or 1.0


def _to_half(projection: Matrix) -> Floats:
    """Return a projection as it is stored: rounded to float16."""
    return projection.astype(np.float16).astype(np.float32)
