"""SDH: supervised discrete hashing (Shen, Shen, Liu and Shen 2015)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.encoders import LinearEncoder
from proxyhash.methods.kernel import Anchors, choose_anchors
from proxyhash.methods.registry import register_method
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Regression = Callable[[Floats], tuple[Floats, Floats]]  # P (anchors, bits) and the constant (bits,) of codes (n, bits)


@dataclass(frozen=True)
class SdhSettings(MethodSettings):
    """Settings of SDH: by default the authors'.

    `kernel=raw` is ours: features as they are, the mean squared distance as bandwidth, and no constant.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"anchors": 1000},
        {"anchors": 3000},
        {"anchors": 3000, "sigma": 0.8},
        {"anchors": 3000, "fit": 1e-3},
    )

    kernel: Literal["unit", "raw"] = "unit"  # of features of length 1, or as they are
    sigma: float = 0.4  # of the kernel of features of length 1
    ridge: float = 0.01  # of P, for features of length 1
    anchors: int = 1_000
    iterations: int = 5  # over W, P and B
    regression: float = 1.0  # lambda, of the labels' regression
    fit: float = 1e-5  # nu, of the hash function's fit to the codes
    sweeps: int | None = None  # over the bits in each iteration at most; None: 10, or 3 with kernel=raw

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried; sigma only where the kernel has one."""
        if (fixed or {}).get("kernel") == "raw":
            return (*cls.SEARCH_SPACE[:2], {"anchors": 3000, "regression": 0.1}, cls.SEARCH_SPACE[3])
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with the sweeps filled in."""
        return replace(self, sweeps=(3 if self.kernel == "raw" else 10) if self.sweeps is None else self.sweeps)


@register_method("sdh", title="SDH", family="shallow", year=2015, settings=SdhSettings)
def fit(data: TrainingData, settings: SdhSettings) -> LinearEncoder:
    """Fit supervised discrete hashing, Shen et al. 2015.

    It minimizes ||Y - W'B||^2 + l ||W||^2 + v ||B - F(X)||^2, F = P' phi(X), over W, P and signs B in turn, for labels
    Y (C, n) and the kernel phi (anchors and a constant, n). W and P are ridge regressions; B is updated bit by bit, each bit
    exactly: b_k = sign(q_k - B_rest' W_rest w_k), Q = W Y + v F.

    Checked against bd622/DiscretHashing (`demo_SDH.m`, `SDH.m`, `RRC.m`, `prepare_dataset.m`): features of length 1,
    sigma = 0.4, 1,000 anchors and a constant, the ridge of 0.01, l = 1, v = 1e-5, 5 iterations with at most 10 sweeps. They
    stop earlier if P no longer changes.
    """
    settings = settings.resolve(tags=data.has_tags, finetune=False)
    assert settings.sweeps is not None
    features, unit = data.load_features(), settings.kernel == "unit"
    anchors = choose_anchors(features, min(settings.anchors, len(features)), data.seed, settings.sigma if unit else None)
    phi = anchors.kernel(np.asarray(features, np.float32))
    mean = phi.mean(0)
    phi -= mean
    labels = data.require_labels().one_hot()
    codes = np.where(generator(data.seed, "sdh").random((len(phi), data.bits)) < 0.5, -1, 1).astype(np.float32)
    regress = _regression(phi, settings.ridge) if unit else _regression_without_constant(phi)
    projection, constant = regress(codes)
    for number in range(settings.iterations):
        data.progress("SDH", number / settings.iterations)
        gram = codes.T @ codes + settings.regression * np.eye(data.bits, dtype=np.float32)
        weights = np.linalg.solve(gram, codes.T @ labels)  # W (bits, C)
        target = labels @ weights.T + settings.fit * (phi @ projection + constant)  # Q' (N, bits)
        codes = cyclic_descent(codes, target, weights @ weights.T, settings.sweeps)
        projection, constant = regress(codes)
    data.progress("SDH", 1.0)
    if unit:
        anchors, mean, projection = _with_constant(anchors, mean, projection, constant)
    return LinearEncoder("sdh", mean, projection, anchors, settings)


def _regression(phi: Floats, ridge: float) -> Regression:
    """Return the ridge regression of codes on phi and a constant; phi is centered, so that the two do not mix.

    The constant has the same ridge, which is as good as none for one column of n ones.
    """
    factor = _factor(phi, ridge)
    scale = len(phi) / (len(phi) + ridge)

    def regress(codes: Floats) -> tuple[Floats, Floats]:
        projection = scipy.linalg.cho_solve(factor, phi.T @ codes).astype(np.float32)
        return projection, (scale * codes.mean(0)).astype(np.float32)

    return regress


def _regression_without_constant(phi: Floats) -> Regression:
    """Return the regression of codes on phi, with a ridge of a millionth of its mean variance."""
    factor = _factor(phi, None)
    return lambda codes: (
        scipy.linalg.cho_solve(factor, phi.T @ codes).astype(np.float32),
        np.zeros(codes.shape[1], np.float32),
    )


def _factor(phi: Floats, ridge: float | None) -> tuple[Doubles, bool]:
    """Return the Cholesky factor of phi' phi plus a ridge; it is computed once."""
    gram = np.zeros((phi.shape[1],) * 2)
    for first in range(0, len(phi), 8192):
        chunk = phi[first : first + 8192].astype(np.float64)  # the kernel of near anchors is nearly singular
        gram += chunk.T @ chunk
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram) if ridge is None else ridge
    factor: tuple[Doubles, bool] = scipy.linalg.cho_factor(gram)
    return factor


def _with_constant(anchors: Anchors, mean: Floats, projection: Floats, constant: Floats) -> tuple[Anchors, Floats, Floats]:
    """Return the kernel with a further anchor at zero, and the mean and P for it.

    Features of length 1 have the distance 1 to that anchor, so that its kernel is a constant.
    """
    points = np.concatenate([anchors.points, np.zeros((1, anchors.points.shape[1]), np.float32)])
    weight = constant * np.float32(np.exp(0.5 / anchors.bandwidth))
    return replace(anchors, points=points), np.append(mean, np.float32(0)), np.concatenate([projection, weight[None]])
