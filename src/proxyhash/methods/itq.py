"""ITQ and ITQ-CCA: projections rotated to the corners of a cube (Gong, Lazebnik, Gordo and Perronnin 2013)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.encoders import Floats, LinearEncoder
from proxyhash.methods.pca import moments, principal_directions
from proxyhash.methods.registry import register_method
from proxyhash.proxies.alignment import itq_rotation
from proxyhash.proxies.geometry import random_rotation
from proxyhash.utils.random import generator

MAX_ROTATED = 1 << 24  # values that a rotation is fitted to: 65,536 rows of 256 bits
MIN_ROWS_PER_BIT = 16


@dataclass(frozen=True)
class ItqSettings(MethodSettings):
    """Settings of ITQ."""

    iterations: int = 50  # the authors'


@dataclass(frozen=True)
class ItqCcaSettings(MethodSettings):
    """Settings of ITQ-CCA."""

    SEARCH_SPACE: ClassVar[SearchSpace] = tuple({"ridge": ridge} for ridge in (1e-4, 1e-2, 0.1, 1.0, 10.0))

    iterations: int = 50
    ridge: float = 1e-4  # the authors' r, relative to the mean variance so that it fits features of any scale


@register_method("itq", title="ITQ", family="shallow", year=2011, settings=ItqSettings, learns_from="nothing")
def fit_itq(data: TrainingData, settings: ItqSettings) -> LinearEncoder:
    """Fit iterative quantization, Gong et al. 2013.

    It minimizes ||B - V R||^2 over signs B (n, bits) and rotations R (bits, bits), for V the first principal components
    of the centered features. Of more than `MAX_ROTATED` values V, the rotation is fitted to a random sample of the rows.

    Checked against copies of the authors' `compressITQ.m` and `ITQ.m` in willard-yuan/hashing-baseline-for-image-retrieval.
    """
    features = data.load_features()
    mean, directions = principal_directions(features, data.bits, "ITQ")
    return _rotated("itq", data, features, mean, directions, settings)


@register_method(
    "itq-cca", title="ITQ-CCA", family="shallow", year=2011, settings=ItqCcaSettings, learns_from="classes or tags"
)
def fit_itq_cca(data: TrainingData, settings: ItqCcaSettings) -> LinearEncoder:
    """Fit ITQ on the directions that correlate most with the labels, Gong et al. 2013.

    The directions w solve Cxy Cyy^-1 Cyx w = l^2 Cxx w and are scaled by l. C classes give C - 1 directions; the
    further bits of longer codes come from the rotation, which mixes these into all.

    Checked against a copy of the authors' `cca.m` in willard-yuan/hashing-baseline-for-image-retrieval: the scaling by l and
    the ridge of 0.0001, which is absolute there.
    """
    features = data.load_features()
    mean, cxx = moments(features)
    width, labels = len(mean), data.require_labels().one_hot(np.float64)
    centered_labels = labels - labels.mean(0)
    cxy = _cross(features, mean, centered_labels)
    cyy = centered_labels.T @ centered_labels / len(labels)
    inner = cxy @ np.linalg.solve(cyy + settings.ridge * np.trace(cyy) / len(cyy) * np.eye(len(cyy)), cxy.T)
    outer = cxx + settings.ridge * np.trace(cxx) / width * np.eye(width)
    count = min(data.bits, width)
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2, outer, subset_by_index=(width - count, width - 1))
    directions = np.zeros((width, data.bits))
    directions[:, :count] = vectors * np.sqrt(np.maximum(values, 0))  # beyond rank C - 1 values are rounding, of either sign
    return _rotated("itq-cca", data, features, mean, directions, settings)


def _cross(
    features: Floats, mean: NDArray[np.float64], labels: NDArray[np.float64], chunk: int = 8192
) -> NDArray[np.float64]:
    total = np.zeros((len(mean), labels.shape[1]))
    for first in range(0, len(features), chunk):
        total += (features[first : first + chunk] - mean).T @ labels[first : first + chunk]
    return total / len(features)


def _sampled(features: Floats, bits: int, seed: int) -> Floats:
    """Return the rows that the rotation is fitted to: all, or a random sample in their order."""
    count = max(MAX_ROTATED // bits, MIN_ROWS_PER_BIT * bits)
    if len(features) <= count:
        return features
    return features[np.sort(generator(seed, "itq-rows").choice(len(features), count, replace=False))]


def _rotated(
    name: str,
    data: TrainingData,
    features: Floats,
    mean: NDArray[np.float64],
    directions: NDArray[np.float64],
    settings: "ItqSettings | ItqCcaSettings",
) -> LinearEncoder:
    sample = _sampled(features, data.bits, data.seed)
    projected = (np.asarray(sample, np.float32) - mean.astype(np.float32)) @ directions.astype(np.float32)
    # The rotation is fitted at unit variance; signs do not depend on the scale.
    scale = np.sqrt(np.square(projected).mean()) or 1.0
    start = random_rotation(data.bits, generator(data.seed, "itq"))
    rotation = itq_rotation((projected / scale).astype(np.float64), start, settings.iterations)
    projection = (directions / scale @ rotation.matrix).astype(np.float32)
    return LinearEncoder(name, mean.astype(np.float32), projection, settings=settings)
