"""CSQ: images pulled to the hash center of their class (Yuan et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.losses import bitwise_cross_entropy, quantization_loss
from proxyhash.methods.base import MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import HashCenters, random_signs
from proxyhash.methods.registry import register_method
from proxyhash.proxies.constructions.hadamard import hadamard
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class CsqSettings(MethodSettings):
    """Settings of CSQ: the weight of the quantization term, by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (
        {"quantization": 1e-4},
        {"quantization": 1e-2},
        {"quantization": 0.1},
    )

    quantization: float = 1e-4


@register_method("csq", title="CSQ", family="centers", year=2020, settings=CsqSettings)
class Csq(HashCenters):
    """Central similarity quantization, Yuan et al. 2020.

    The loss is the binary cross-entropy between (nu + 1) / 2 (N, K) and the bits of the image's center, plus the
    quantization loss. Centers are rows of a Hadamard matrix and their complements, or random bits if these are too few.
    """

    settings: CsqSettings

    def __init__(self, data: TrainingData, settings: CsqSettings) -> None:
        super().__init__(data, settings, _centers(data.num_classes, data.bits, generator(data.seed, "csq")))

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss = bitwise_cross_entropy(embeddings, self.target_codes(targets))
        return loss + self.settings.quantization * quantization_loss(embeddings)


def _centers(classes: int, bits: int, random: np.random.Generator) -> NDArray[np.float32]:
    matrix = hadamard(bits)
    if matrix is None or classes > 2 * bits:
        return random_signs((classes, bits), random)
    both = np.concatenate([matrix, -matrix]).astype(np.float32)
    return (
        both[random.permutation(len(both))[:classes]] if classes > bits else both[:bits][random.permutation(bits)[:classes]]
    )
