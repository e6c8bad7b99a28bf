"""KSH: supervised hashing with kernels (Liu, Wang, Ji, Jiang and Chang 2012)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.encoders import LinearEncoder
from proxyhash.methods.kernel import choose_anchors
from proxyhash.methods.registry import register_method
from proxyhash.utils.parallel import single_threaded_blas
from proxyhash.utils.random import generator

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class KshSettings(MethodSettings):
    """Settings of KSH.

    By default the authors' 300 anchors; more labeled images than their 2,000, because pairs are not written out.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"anchors": 300},
        {"anchors": 1000},
        {"anchors": 1000, "samples": 5_000},
        {"anchors": 1000, "steps": 200},
    )

    anchors: int = 300
    samples: int = 10_000
    steps: int = 100  # of accelerated gradient for each bit


@register_method("ksh", title="KSH", family="shallow", year=2012, settings=KshSettings, learns_from="classes")
def fit(data: TrainingData, settings: KshSettings) -> LinearEncoder:
    """Fit supervised hashing with kernels, Liu et al. 2012.

    It minimizes ||sum_k y_k y_k' - bits S||^2 bit by bit, y = sign(G a), G (n, anchors) the centered kernel, S = +1 in
    a class, else -1. Each bit starts at the top generalized eigenvector of (G'RG, G'G) for the residual R and is
    refined by accelerated gradient on a sigmoid; the better of the two is used. Then y y' is subtracted from R. R is
    represented by the classes and the bits so far, so that memory is linear in the images.

    Checked against ColumbiaDVMM/Supervised-Hashing-with-Kernels (`KSH_demo.m`, `OptProjectionFast.m`): the kernel and its
    bandwidth, the start, the sigmoid, the choice of the better. Ours are how a step's size is found, and when steps end.
    """
    random = generator(data.seed, "ksh")
    features = data.load_features()
    chosen = np.sort(random.permutation(len(features))[: settings.samples])
    anchors = choose_anchors(features, min(settings.anchors, len(features)), data.seed)
    kernel = anchors.kernel(np.asarray(features[chosen], np.float32))
    mean = kernel.mean(0, dtype=np.float64)
    kernel -= mean.astype(np.float32)
    residual = Residual(kernel, data.require_class_labels().values[chosen], data.bits)
    columns = []
    with single_threaded_blas():  # products of a matrix and a vector wait for memory, not for cores
        for bit in range(data.bits):
            data.progress("KSH", bit / data.bits)
            columns.append(_next_column(kernel, residual, settings.steps))
            residual.subtract(_signs(kernel, columns[-1]))
    data.progress("KSH", 1.0)
    projection = np.stack(columns, axis=1).astype(np.float32)
    return LinearEncoder("ksh", mean.astype(np.float32), projection, anchors, settings)


class Residual:
    """Residual R = bits S - sum_k y_k y_k', S = +1 in a class, else -1: as an operator, and as G'RG (m, m).

    A bit subtracts y y' from R and (G'y)(G'y)' from G'RG, so that no bit costs a product of matrices.
    """

    def __init__(self, kernel: Floats, labels: NDArray[np.integer[Any]], bits: int) -> None:
        self.kernel, self.labels, self.bits = kernel, labels, bits
        self.codes = np.zeros((len(labels), 0))
        exact = kernel.astype(np.float64)
        by_class = np.stack([exact[labels == each].sum(0) for each in np.unique(labels)])
        whole = by_class.sum(0)
        self.projected: Doubles = bits * (2 * by_class.T @ by_class - np.outer(whole, whole))
        gram = exact.T @ exact
        gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
        self.root: Doubles = scipy.linalg.cholesky(gram, lower=True)

    def __matmul__(self, values: Doubles) -> Doubles:
        """Return R v for v (N,)."""
        same = np.bincount(self.labels, values)[self.labels]
        product: Doubles = self.bits * (2 * same - values.sum()) - self.codes @ (self.codes.T @ values)
        return product

    def subtract(self, signs: Doubles) -> None:
        """Subtract y y'."""
        self.codes = np.column_stack([self.codes, signs])
        seen = (self.kernel.T @ signs.astype(np.float32)).astype(np.float64)
        self.projected -= np.outer(seen, seen)

    def top(self) -> Doubles:
        """Return the top generalized eigenvector (m,) of (G'RG, G'G)."""
        half = scipy.linalg.solve_triangular(self.root, self.projected, lower=True)
        whitened = scipy.linalg.solve_triangular(self.root, half.T, lower=True)
        last = len(whitened) - 1
        _, vectors = scipy.linalg.eigh((whitened + whitened.T) / 2, subset_by_index=(last, last))
        found: Doubles = scipy.linalg.solve_triangular(self.root, vectors[:, 0], lower=True, trans="T")
        return found


def _next_column(kernel: Floats, residual: Residual, steps: int) -> Doubles:
    """Return the better of the spectral start and its refinement, by y'Ry on signs."""
    start = residual.top()
    start *= np.sqrt(len(kernel) / np.square(_projected(kernel, start)).sum())
    refined = _refined(kernel, residual, start, steps)
    return max((start, refined), key=lambda column: agreement(_signs(kernel, column), residual))


def _projected(kernel: Floats, column: Doubles) -> Doubles:
    """Return G a (N,)."""
    return (kernel @ column.astype(np.float32)).astype(np.float64)


def _signs(kernel: Floats, column: Doubles) -> Doubles:
    return np.where(_projected(kernel, column) >= 0, 1.0, -1.0)


def agreement(signs: Doubles, residual: Residual) -> float:
    """Return y'Ry."""
    return float(signs @ (residual @ signs))


def _refined(kernel: Floats, residual: Residual, start: Doubles, steps: int) -> Doubles:
    """Raise f(a) = s'Rs, s = tanh(G a / 2), by Nesterov's accelerated gradient with a step that shrinks until it helps.

    G a is linear in a, so it is carried along: a step reads the kernel twice, for G' of what pulls and for G of that.
    """

    def pull(projected: Doubles) -> Doubles:
        soft = np.tanh(projected / 2)
        pulled: Doubles = (kernel.T @ ((residual @ soft) * (1 - np.square(soft))).astype(np.float32)).astype(np.float64)
        return pulled

    column = previous = start
    here = before = _projected(kernel, start)
    value = agreement(np.tanh(here / 2), residual)
    rate = np.linalg.norm(start) / (np.linalg.norm(pull(here)) + 1e-12)
    for step in range(1, steps + 1):
        momentum = (step - 1) / (step + 2)
        ahead, there = column + momentum * (column - previous), here + momentum * (here - before)
        gradient = pull(there)
        candidate, reached = ahead + rate * gradient, there + rate * _projected(kernel, gradient)
        better = agreement(np.tanh(reached / 2), residual)
        if better < value:
            rate /= 2
            previous, before = column, here  # momentum led astray: start it anew
            if rate * np.linalg.norm(gradient) < 1e-6 * np.linalg.norm(column):
                break
            continue
        (previous, before), (column, here), value = (column, here), (candidate, reached), better
    return column
