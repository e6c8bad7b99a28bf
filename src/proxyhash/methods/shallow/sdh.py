"""SDH, supervised discrete hashing (Shen, Shen, Liu and Shen 2015): codes from which labels can be regressed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.lesson import Lesson
from proxyhash.methods.registry import method
from proxyhash.methods.shallow.discrete import cyclic_descent
from proxyhash.methods.shallow.feature_hasher import FeatureHasher
from proxyhash.methods.shallow.kernel import choose_anchors
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class SdhSettings:
    """The authors' settings."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"anchors": 1000},
        {"anchors": 3000},
        {"anchors": 3000, "regression": 0.1},
        {"anchors": 3000, "fit": 1e-3},
    )

    anchors: int = 1_000
    rounds: int = 5
    regression: float = 1.0  # lambda, of the labels' regression
    fit: float = 1e-5  # nu, of the hash function's fit to the codes
    sweeps: int = 3  # over the bits in each round; the authors sweep until nothing changes, which three nearly reach


@method("sdh", "SDH", "shallow", 2015, SdhSettings, learns_from="classes or tags")
def fit(lesson: Lesson, settings: SdhSettings) -> FeatureHasher:
    """Minimize ||Y - W'B||^2 + l ||W||^2 + v ||B - F(X)||^2, F = P' phi(X), over W, P and signs B, each in turn.

    W and P are regressions; B is updated bit by bit, each exactly: b_k = sign(q_k - B_rest' W_rest w_k), Q = W Y + v F.
    """
    anchors = choose_anchors(lesson.features, min(settings.anchors, len(lesson.features)), lesson.seed)
    phi = anchors.kernel(np.asarray(lesson.features, np.float32))
    mean = phi.mean(0)
    phi -= mean
    labels = lesson.indicator().astype(np.float32)
    codes = np.where(generator(lesson.seed, "sdh").random((len(phi), lesson.bits)) < 0.5, -1, 1).astype(np.float32)
    regress = _regression(phi)
    projection = regress(codes)
    for number in range(settings.rounds):
        lesson.progress("SDH", number / settings.rounds)
        gram = codes.T @ codes + settings.regression * np.eye(lesson.bits, dtype=np.float32)
        weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
        target = labels @ weights.T + settings.fit * (phi @ projection)  # Q' (N, bits)
        codes = cyclic_descent(codes, target, weights @ weights.T, settings.sweeps)
        projection = regress(codes)
    lesson.progress("SDH", 1.0)
    return FeatureHasher("sdh", mean, projection.astype(np.float32), anchors, settings)


def _regression(phi: Floats) -> Callable[[Floats], Floats]:
    """Return the map from codes B (N, bits) to P = (phi' phi)^-1 phi' B, the inverse prepared once."""
    gram = np.zeros((phi.shape[1],) * 2)
    for first in range(0, len(phi), 8192):
        piece = phi[first : first + 8192].astype(np.float64)  # the kernel of near anchors is nearly singular
        gram += piece.T @ piece
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
    factor = scipy.linalg.cho_factor(gram)
    return lambda codes: scipy.linalg.cho_solve(factor, phi.T @ codes).astype(np.float32)
