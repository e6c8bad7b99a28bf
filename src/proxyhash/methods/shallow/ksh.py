"""KSH, supervised hashing with kernels (Liu, Wang, Ji, Jiang and Chang 2012): bits that add up to the pairs' similarity."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from proxyhash.methods.lesson import Lesson
from proxyhash.methods.registry import method
from proxyhash.methods.shallow.feature_hasher import FeatureHasher
from proxyhash.methods.shallow.kernel import choose_anchors
from proxyhash.support.parallel import single_threaded_blas
from proxyhash.support.seeds import generator

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class KshSettings:
    """The authors' 300 anchors; more labelled images than their 2,000, since pairs are never written out."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = (
        {"anchors": 300},
        {"anchors": 1000},
        {"anchors": 1000, "samples": 5_000},
        {"anchors": 1000, "steps": 200},
    )

    anchors: int = 300
    samples: int = 10_000
    steps: int = 100  # of accelerated gradient for each bit


@method("ksh", "KSH", "shallow", 2012, KshSettings, learns_from="classes")
def fit(lesson: Lesson, settings: KshSettings) -> FeatureHasher:
    """Minimise ||sum_k y_k y_k' - bits S||^2 bit by bit, y = sign(G a), G the centred kernel, S = +1 in a class, else -1.

    Each bit starts at the top generalised eigenvector of (G'RG, G'G) for the residual R, is refined by accelerated gradient
    on a sigmoid, and the better of the two stays; then R loses y y'. R is kept as the classes and the bits so far, so that
    memory is linear in the images.
    """
    random = generator(lesson.seed, "ksh")
    chosen = np.sort(random.permutation(len(lesson.features))[: settings.samples])
    anchors = choose_anchors(lesson.features, min(settings.anchors, len(lesson.features)), lesson.seed)
    kernel = anchors.kernel(np.asarray(lesson.features[chosen], np.float32)).astype(np.float64)
    mean = kernel.mean(0)
    kernel -= mean
    residual = _Residual(lesson.indicator()[chosen], lesson.bits)
    gram = kernel.T @ kernel
    gram[np.diag_indices_from(gram)] += 1e-6 * np.trace(gram) / len(gram)
    columns = []
    with single_threaded_blas():  # products of a matrix and a vector wait for memory, not for cores
        for bit in range(lesson.bits):
            lesson.progress("KSH", bit / lesson.bits)
            columns.append(_next_column(kernel, gram, residual, settings.steps))
            residual.subtract(np.where(kernel @ columns[-1] >= 0, 1.0, -1.0))
    lesson.progress("KSH", 1.0)
    projection = np.stack(columns, axis=1).astype(np.float32)
    return FeatureHasher("ksh", mean.astype(np.float32), projection, anchors, settings)


class _Residual:
    """R = bits S - sum_k y_k y_k' as an operator, S = 2 Y Y' - 1 for one-hot classes Y (N, C)."""

    def __init__(self, classes: Doubles, bits: int) -> None:
        self.classes, self.bits = classes, bits
        self.codes = np.zeros((len(classes), 0))

    def __matmul__(self, rows: Doubles) -> Doubles:
        """Return R v for v (N,) or (N, m)."""
        same = self.classes @ (self.classes.T @ rows)
        product: Doubles = self.bits * (2 * same - rows.sum(0)) - self.codes @ (self.codes.T @ rows)
        return product

    def subtract(self, signs: Doubles) -> None:
        """Take y y' away."""
        self.codes = np.column_stack([self.codes, signs])


def _next_column(kernel: Doubles, gram: Doubles, residual: _Residual, steps: int) -> Doubles:
    """Return the better of the spectral start and its refinement, by y'Ry on signs."""
    matrix = kernel.T @ (residual @ kernel)
    last = len(gram) - 1
    _, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2, gram, subset_by_index=(last, last))
    start = vectors[:, 0] * np.sqrt(len(kernel) / np.square(kernel @ vectors[:, 0]).sum())
    refined = _refined(kernel, residual, start, steps)
    return max((start, refined), key=lambda column: agreement(np.where(kernel @ column >= 0, 1.0, -1.0), residual))


def agreement(signs: Doubles, residual: _Residual) -> float:
    """Return y'Ry."""
    return float(signs @ (residual @ signs))


def _refined(kernel: Doubles, residual: _Residual, start: Doubles, steps: int) -> Doubles:
    """Raise f(a) = s'Rs, s = tanh(G a / 2), by Nesterov's accelerated gradient with a step that shrinks until it helps."""

    def value_and_gradient(column: Doubles) -> tuple[float, Doubles]:
        soft = np.tanh(kernel @ column / 2)
        applied = residual @ soft
        return float(soft @ applied), kernel.T @ (applied * (1 - np.square(soft)))

    column = previous = start
    value, gradient = value_and_gradient(column)
    rate = np.linalg.norm(start) / (np.linalg.norm(gradient) + 1e-12)
    for step in range(1, steps + 1):
        ahead = column + (step - 1) / (step + 2) * (column - previous)
        _, gradient = value_and_gradient(ahead)
        candidate = ahead + rate * gradient
        reached = value_and_gradient(candidate)[0]
        if reached < value:
            rate /= 2
            previous = column  # momentum led astray: start it anew
            if rate * np.linalg.norm(gradient) < 1e-6 * np.linalg.norm(column):
                break
            continue
        previous, column, value = column, candidate, reached
    return column
