"""RBF kernel with anchors, phi(x)_j = exp(-||x - a_j||^2 / (2 s)), of KSH and SDH."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]
MIN_SIGMA = 0.1  # below it, kernels of vectors of length 1 vanish in single precision


@dataclass(frozen=True, eq=False)
class Anchors:
    """Anchor points (m, width) of the training set, and the bandwidth s.

    With `unit_norm`, features are scaled to length 1 first, as the points are.
    """

    points: Floats
    bandwidth: float
    unit_norm: bool = False

    def kernel(self, features: Floats) -> Floats:
        """Return phi (N, m)."""
        features = scale_to_unit_norm(features) if self.unit_norm else features
        kernel: Floats = np.exp(squared_distances(features, self.points) * np.float32(-0.5 / self.bandwidth))
        return kernel


def choose_anchors(features: Floats, count: int, seed: int, sigma: float | None = None) -> Anchors:
    """Draw `count` training images as anchors.

    The bandwidth is the mean squared distance to them. With `sigma` it is sigma^2, and features are scaled to length 1.
    """
    if count > len(features):
        raise InputError(f"{count} anchors cannot be drawn from {len(features)} training images; ask for fewer.")
    random = generator(seed, "anchors")
    points = np.array(features[np.sort(random.choice(len(features), count, replace=False))], np.float32)
    if sigma is not None:
        if not sigma >= MIN_SIGMA:
            raise InputError(f"sigma must be at least {MIN_SIGMA}, not {sigma}.")
        return Anchors(scale_to_unit_norm(points), sigma**2, unit_norm=True)
    sample = np.array(features[np.sort(random.choice(len(features), min(2_000, len(features)), replace=False))], np.float32)
    bandwidth = float(squared_distances(sample, points).mean())
    return Anchors(points, bandwidth or 1.0)


def scale_to_unit_norm(features: Floats) -> Floats:
    """Return features (N, width) divided by their lengths; a row of zeros stays one."""
    lengths = np.sqrt(np.square(features).sum(1, keepdims=True))
    scaled: Floats = (features / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled


def squared_distances(features: Floats, points: Floats) -> Floats:
    """Return ||x - a||^2 (N, m), by one matrix product."""
    squares = np.square(features).sum(1)[:, None] + np.square(points).sum(1) - 2 * features @ points.T
    distances: Floats = np.maximum(squares, 0)  # rounding may take what is equal below zero
    return distances
