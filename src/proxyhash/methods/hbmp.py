"""HBMP: codes from binary matrix pursuit, and a hinge (Cakir, He and Sclaroff 2018)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.optimize
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.losses import polarization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.coordinate_descent import improve_bit
from proxyhash.methods.label_sets import LabelSets, label_sets
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import HeadConfig, LinearHead, WeightedHead
from proxyhash.utils.random import generator

Doubles = NDArray[np.float64]
Solver = Callable[[Doubles, Doubles], Doubles]  # weights (K,) of codes (U, K) and similarities (U, U)
CHUNK = 2048  # label sets whose similarity to the anchors is computed at once


@dataclass(frozen=True)
class HbmpSettings(MethodSettings):
    """Settings of HBMP.

    They are the margin of the hinge, and the number of label sets whose codes are computed (ours: others follow these).
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"margin": 0.5}, {"margin": 1.0}, {"margin": 2.0})

    margin: float = 1.0
    max_label_sets: int = 2_000


@dataclass(frozen=True)
class HbmpRegressSettings(HbmpSettings):
    """Settings of HBMP with regressed weights; `nonnegative` weights that count the diagonal too are our earlier form."""

    nonnegative: bool = False


class _MatrixPursuit(HashingMethod):
    """Hashing with binary matrix pursuit, Cakir, He and Sclaroff 2018.

    The loss is the mean of max(0, m - u_k y_k), u (N, K), y the code of the image's label set, found before training:
    each bit lowers ||S - sum_k w_k y_k y_k'||^2. S = +1 for label sets that share a class or tag, else -1. A bit is the
    signs of the residual's top eigenvector, improved entry by entry (ours: with many classes that eigenvector is one of
    many).

    Checked against the branch hbmp of fcakir/deep-mihash (`hbmp/hbmp_codes.m`, `binary_inference.m`, `hbmp_forward.m`): S of
    distinct label sets, m = 1, and the weights.
    """

    settings: HbmpSettings
    targets: Tensor

    def __init__(self, data: TrainingData, settings: HbmpSettings) -> None:
        super().__init__(data, settings)
        found = label_sets(data.require_labels().one_hot())
        random = generator(data.seed, "hbmp")
        codes, self.weights = pursue(found, data.bits, settings.max_label_sets, random, self._solver())
        self.register_buffer("targets", torch.from_numpy(codes[found.member].astype(np.float32)))

    def _solver(self) -> Solver | None:
        """Return what finds the weights of codes; None: they are 1 / K."""
        return None

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return polarization_loss(embeddings, self.targets[indices], self.settings.margin)


@register_method("hbmp", title="HBMP", family="pairwise", year=2018, settings=HbmpSettings)
class Hbmp(_MatrixPursuit):
    """HBMP with constant weights 1 / K: its codes are compared by Hamming distance."""

    def build_head(self, config: HeadConfig) -> LinearHead:
        """Return a head without tanh."""
        return LinearHead(config)


@register_method(
    "hbmp-regress",
    title="HBMP regress",
    family="pairwise",
    year=2018,
    settings=HbmpRegressSettings,
    metric="weighted hamming",
)
class HbmpRegress(_MatrixPursuit):
    """HBMP with weights that are regressed after each bit and used in the search.

    As in the authors' code they are a least-squares solution without bounds, so that a weight may be below 0, and the
    diagonal of S, each label set with itself, does not count.
    """

    settings: HbmpRegressSettings

    def _solver(self) -> Solver:
        return nonnegative_weights if self.settings.nonnegative else regressed_weights

    def build_head(self, config: HeadConfig) -> WeightedHead:
        """Return a head without tanh that searches by the regressed weights."""
        head = WeightedHead(config)
        head.weights.copy_(torch.from_numpy(self.weights))
        return head


def pursue(
    sets: LabelSets, bits: int, most: int, random: np.random.Generator, solve: Solver | None = None
) -> tuple[Doubles, Doubles]:
    """Return codes (U, bits) of label sets and weights (bits,): those of `solve`, or 1 / bits.

    Bits are found for the `most` frequent sets, the anchors; the others follow them, in chunks.
    """
    anchors = sets.similarity(slice(most), slice(most))
    codes, steps = np.zeros((len(anchors), 0)), [np.zeros(0)]
    for bit in range(bits):
        residual = anchors - (codes * steps[-1]) @ codes.T
        if solve is regressed_weights:
            np.fill_diagonal(residual, 0)
        found = improve_bit(_top_signs(residual, random), residual, np.ones(len(anchors)))
        codes = np.column_stack([codes, found])
        steps.append(solve(codes, anchors) if solve else np.full(bit + 1, 1 / bits))
    chunks = [slice(first, first + CHUNK) for first in range(len(anchors), len(sets.rows), CHUNK)]
    rest = [_following(sets.similarity(chunk, slice(most)), codes, steps) for chunk in chunks]
    return np.concatenate([codes, *rest]), steps[-1]


def _following(similarity: Doubles, anchors: Doubles, steps: list[Doubles]) -> Doubles:
    """Return the codes (n, bits) of sets by their similarity (n, A) to anchors: signs of residual times anchors."""
    codes = np.zeros((len(similarity), 0))
    for bit, weights in enumerate(steps[:-1]):
        pull = (similarity - (codes * weights) @ anchors[:, :bit].T) @ anchors[:, bit]
        codes = np.column_stack([codes, np.where(pull >= 0, 1.0, -1.0)])
    return codes


def regressed_weights(codes: Doubles, similarity: Doubles) -> Doubles:
    """Return w that minimizes sum_{u != v} (S_uv - sum_k w_k y_uk y_vk)^2, for codes (U, K), of several the shortest."""
    gram, products = _normal_equations(codes, similarity)
    gram, products = gram - len(codes), products - np.trace(similarity)  # a code has y_uk y_uk = 1 on the diagonal
    weights: Doubles = np.linalg.pinv(gram, rcond=1e-9, hermitian=True) @ products
    return weights


def nonnegative_weights(codes: Doubles, similarity: Doubles) -> Doubles:
    """Return the weights w >= 0 that minimize ||S - sum_k w_k y_k y_k'||^2, for codes (U, K): K normal equations."""
    gram, products = _normal_equations(codes, similarity)
    values, vectors = np.linalg.eigh(gram)
    root = np.sqrt(np.maximum(values, 1e-9 * values[-1]))  # equal bits share their weight
    weights: Doubles = scipy.optimize.nnls((vectors * root).T, (vectors.T @ products) / root)[0]
    return weights


def _normal_equations(codes: Doubles, similarity: Doubles) -> tuple[Doubles, Doubles]:
    products: Doubles = np.einsum("uk,uv,vk->k", codes, similarity, codes, optimize=True)
    return np.square(codes.T @ codes), products


def _top_signs(residual: Doubles, random: np.random.Generator) -> Doubles:
    """Return the signs of a top eigenvector, drawn at random if there are several."""
    values, vectors = np.linalg.eigh(residual)
    top = vectors[:, values > values[-1] - 1e-6 * max(1.0, abs(values[-1]))]
    return np.where(top @ random.standard_normal(top.shape[1]) >= 0, 1.0, -1.0)
