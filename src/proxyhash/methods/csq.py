"""CSQ: images pulled to the hash center of their class (Yuan et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.losses import bitwise_cross_entropy, inner_products, pair_nll, quantization_loss, similar_pairs
from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import HashCenters, random_signs
from proxyhash.methods.registry import register_method
from proxyhash.proxies.constructions.hadamard import hadamard
from proxyhash.utils.random import generator

SLOPE = 10.0  # theta = (SLOPE / K) nu_i.nu_j
MAX_DRAWS = 1_000  # sets of balanced centers; fewer for many classes, whose distances take longer
MAX_DISTANCES = 10_000_000  # computed in all draws


@dataclass(frozen=True)
class CsqSettings(MethodSettings):
    """Settings of CSQ: by default the authors'.

    `pairs` and `quantization` are lambda1 and lambda2 of `options.py`. `centers` says how centers are drawn that are too
    many for a Hadamard matrix.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"pairs": 0.2, "quantization": 0.05},
        {"pairs": 0.0, "quantization": 0.05},
        {"pairs": 0.0, "quantization": 1e-4},
    )

    pairs: float = 0.2
    quantization: float = 0.05
    centers: Literal["balanced", "random"] = "balanced"


@register_method("csq", title="CSQ", family="centers", year=2020, settings=CsqSettings)
class Csq(HashCenters):
    """Central similarity quantization, Yuan et al. 2020.

    The loss is the binary cross-entropy between (nu + 1) / 2 (N, K) and the bits of the image's center, plus lambda1 times
    the mean of log(1 + e^theta) - s theta over the pairs of an image in the first half of the batch and one in the second,
    theta = (10 / K) nu_i.nu_j, plus lambda2 times the mean of (|nu| - 1)^2.

    Centers are rows of a Hadamard matrix and their complements. If these are too few, they are rows with K / 2 times +1,
    drawn at random; of many draws the one with the largest minimum distance is used. The center of an image with several
    tags is the majority vote.

    Checked against yuanli2333/Hadamard-Matrix-for-hashing: `train.py`, `my_pairwise_loss.py`, `options.py`, the notebook
    that generates centers, and the centers that it ships. For 100 classes these have the minimum distance 2 at 16 bits and
    8 at 32 bits, as ours have. Ours: Hadamard matrices of all orders, not of powers of 2 only; the classes get their rows
    at random. The authors' head has two hidden layers of the features' width.
    """

    settings: CsqSettings

    def __init__(self, data: TrainingData, settings: CsqSettings) -> None:
        centers = draw_centers(data.num_classes, data.bits, settings.centers, generator(data.seed, "csq"))
        super().__init__(data, settings, centers)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss = bitwise_cross_entropy(embeddings, self.target_codes(targets))
        if self.settings.pairs and len(embeddings) > 1:
            loss = loss + self.settings.pairs * _pair_loss(embeddings, targets)
        return loss + self.settings.quantization * quantization_loss(embeddings)


def _pair_loss(embeddings: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of the pairs between the halves of a batch; the last image of an odd batch is left out."""
    half, bits = len(embeddings) // 2, embeddings.shape[1]
    theta = SLOPE / bits * inner_products(embeddings[:half], embeddings[half : 2 * half])
    return pair_nll(theta, similar_pairs(targets[:half], targets[half : 2 * half])).mean()


def draw_centers(
    classes: int, bits: int, kind: Literal["balanced", "random"], random: np.random.Generator
) -> NDArray[np.float32]:
    """Return centers (C, bits): Hadamard rows, or rows of a kind if these are too few."""
    matrix = hadamard(bits)
    if matrix is None or classes > 2 * bits:
        return random_signs((classes, bits), random) if kind == "random" else balanced_signs(classes, bits, random)
    both = np.concatenate([matrix, -matrix]).astype(np.float32)
    return (
        both[random.permutation(len(both))[:classes]] if classes > bits else both[:bits][random.permutation(bits)[:classes]]
    )


def balanced_signs(classes: int, bits: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Return the best of many random sets of rows with half the entries +1: by minimum distance, then by mean distance."""
    best, score = np.zeros((classes, bits), np.float32), (-1.0, -1.0)
    for _ in range(int(np.clip(MAX_DISTANCES // classes**2, 1, MAX_DRAWS))):
        ranks = random.random((classes, bits)).argsort(1).argsort(1)
        drawn = np.where(ranks < (bits + 1) // 2, np.float32(1), np.float32(-1))
        products = drawn @ drawn.T
        np.fill_diagonal(products, -bits)
        found = float(bits - products.max()) / 2, -float(products.sum())
        if found > score:
            best, score = drawn, found
    return best
