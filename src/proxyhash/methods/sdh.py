"""SDH: supervised discrete hashing (Shen, Shen, Liu and Shen 2015)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.encoders import LinearEncoder
from proxyhash.methods.kernel import choose_anchors
from proxyhash.methods.registry import register_method
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SdhSettings(MethodSettings):
    """Settings of SDH: by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"anchors": 1000},
        {"anchors": 3000},
        {"anchors": 3000, "regression": 0.1},
        {"anchors": 3000, "fit": 1e-3},
    )

    anchors: int = 1_000
    iterations: int = 5  # over W, P and B
    regression: float = 1.0  # lambda, of the labels' regression
    fit: float = 1e-5  # nu, of the hash function's fit to the codes
    sweeps: int = 3  # over the bits in each iteration; the authors sweep until nothing changes, which three nearly reach


@register_method("sdh", title="SDH", family="shallow", year=2015, settings=SdhSettings)
def fit(data: TrainingData, settings: SdhSettings) -> LinearEncoder:
    """Fit supervised discrete hashing, Shen et al. 2015.

    It minimizes ||Y - W'B||^2 + l ||W||^2 + v ||B - F(X)||^2, F = P' phi(X), over W, P and signs B in turn, for labels
    Y (C, n) and the kernel phi (anchors, n). W and P are regressions; B is updated bit by bit, each bit exactly: b_k =
    sign(q_k - B_rest' W_rest w_k), Q = W Y + v F.
    """
    features = data.load_features()
    anchors = choose_anchors(features, min(settings.anchors, len(features)), data.seed)
    phi = anchors.kernel(np.asarray(features, np.float32))
    mean = phi.mean(0)
    phi -= mean
    labels = data.require_labels().one_hot()
    codes = np.where(generator(data.seed, "sdh").random((len(phi), data.bits)) < 0.5, -1, 1).astype(np.float32)
    regress = _regression(phi)
    projection = regress(codes)
    for number in range(settings.iterations):
        data.progress("SDH", number / settings.iterations)
        gram = codes.T @ codes + settings.regression * np.eye(data.bits, dtype=np.float32)
        weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
        target = labels @ weights.T + settings.fit * (phi @ projection)  # Q' (N, bits)
        codes = cyclic_descent(codes, target, weights @ weights.T, settings.sweeps)
        projection = regress(codes)
    data.progress("SDH", 1.0)
    return LinearEncoder("sdh", mean, projection.astype(np.float32), anchors, settings)


def _regression(phi: Floats) -> Callable[[Floats], Floats]:
    """Return the map from codes B (N, bits) to P = (phi' phi)^-1 phi' B; the inverse is computed once."""
    gram = np.zeros((phi.shape[1],) * 2)
    for first in range(0, len(phi), 8192):
        chunk = phi[first : first + 8192].astype(np.float64)  # the kernel of near anchors is nearly singular
        gram += chunk.T @ chunk
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
    factor = scipy.linalg.cho_factor(gram)
    return lambda codes: scipy.linalg.cho_solve(factor, phi.T @ codes).astype(np.float32)
