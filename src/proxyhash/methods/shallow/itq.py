"""ITQ and ITQ-CCA (Gong, Lazebnik, Gordo and Perronnin 2013): project, then rotate towards the corners of the cube."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.lesson import Lesson
from proxyhash.methods.registry import method
from proxyhash.methods.shallow.feature_hasher import FeatureHasher, Floats
from proxyhash.proxies.alignment import itq_rotation
from proxyhash.proxies.geometry import random_rotation
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class ItqSettings:
    """How often signs and rotation are alternated."""

    iterations: int = 50  # the authors'


@dataclass(frozen=True)
class ItqCcaSettings:
    """The same, and what keeps the covariances invertible."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = tuple({"ridge": ridge} for ridge in (1e-4, 1e-2, 0.1, 1.0, 10.0))

    iterations: int = 50
    ridge: float = 1e-4  # the authors' r, relative to the mean variance so that it fits features of any scale


@method("itq", "ITQ", "shallow", 2011, ItqSettings, learns_from="nothing")
def fit_itq(lesson: Lesson, settings: ItqSettings) -> FeatureHasher:
    """Minimize ||B - V R||^2 over signs B and rotations R, for V the first principal components of the centred features."""
    if lesson.bits > lesson.features.shape[1]:
        raise InputError(f"ITQ finds at most {lesson.features.shape[1]} principal components, not {lesson.bits} bits.")
    mean, covariance = moments(lesson.features)
    _, vectors = scipy.linalg.eigh(covariance, subset_by_index=(len(mean) - lesson.bits, len(mean) - 1))
    return _rotated("itq", lesson, mean, vectors, settings.iterations, settings)


@method("itq-cca", "ITQ-CCA", "shallow", 2011, ItqCcaSettings, learns_from="classes or tags")
def fit_itq_cca(lesson: Lesson, settings: ItqCcaSettings) -> FeatureHasher:
    """ITQ on the directions that correlate most with the labels: Cxy Cyy^-1 Cyx w = l^2 Cxx w, columns scaled by l.

    C classes give C - 1 directions; longer codes get their further bits from the rotation, which mixes these into all.
    """
    mean, cxx = moments(lesson.features)
    width, labels = len(mean), lesson.indicator()
    centred_labels = labels - labels.mean(0)
    cxy = _cross(lesson.features, mean, centred_labels)
    cyy = centred_labels.T @ centred_labels / len(labels)
    inner = cxy @ np.linalg.solve(cyy + settings.ridge * np.trace(cyy) / len(cyy) * np.eye(len(cyy)), cxy.T)
    outer = cxx + settings.ridge * np.trace(cxx) / width * np.eye(width)
    count = min(lesson.bits, width)
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2, outer, subset_by_index=(width - count, width - 1))
    directions = np.zeros((width, lesson.bits))
    directions[:, :count] = vectors * np.sqrt(np.maximum(values, 0))  # beyond rank C - 1 values are rounding, of either sign
    return _rotated("itq-cca", lesson, mean, directions, settings.iterations, settings)


def moments(features: Floats, piece: int = 8192) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean (q,) and covariance (q, q) of features (N, q), a piece at a time."""
    mean = np.asarray(features.mean(0, dtype=np.float64))
    covariance = np.zeros((len(mean), len(mean)))
    for first in range(0, len(features), piece):
        centred = features[first : first + piece] - mean.astype(np.float32)
        covariance += centred.T @ centred
    return mean, covariance / len(features)


def _cross(
    features: Floats, mean: NDArray[np.float64], labels: NDArray[np.float64], piece: int = 8192
) -> NDArray[np.float64]:
    total = np.zeros((len(mean), labels.shape[1]))
    for first in range(0, len(features), piece):
        total += (features[first : first + piece] - mean).T @ labels[first : first + piece]
    return total / len(features)


def _rotated(
    name: str, lesson: Lesson, mean: NDArray[np.float64], directions: NDArray[np.float64], iterations: int, settings: object
) -> FeatureHasher:
    projected = (np.asarray(lesson.features, np.float32) - mean.astype(np.float32)) @ directions.astype(np.float32)
    # The error, and so the rotation, is judged at unit variance; signs do not depend on scale.
    scale = np.sqrt(np.square(projected).mean()) or 1.0
    start = random_rotation(lesson.bits, generator(lesson.seed, "itq"))
    rotation = itq_rotation((projected / scale).astype(np.float64), start, iterations)
    projection = (directions / scale @ rotation.matrix).astype(np.float32)
    return FeatureHasher(name, mean.astype(np.float32), projection, settings=settings)
