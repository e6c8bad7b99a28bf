"""Hash centers: a fixed target code for each class."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.base import HashingMethod, MethodSettings, TrainingData
from proxyhash.utils.random import generator


class HashCenters(HashingMethod):
    """A method around `centers` (C, bits) of +1 and -1.

    The target of an image with several tags is the majority vote of their centers; a tied bit is decided by a coin that is
    thrown once for all images.
    """

    centers: Tensor
    coin: Tensor

    def __init__(self, data: TrainingData, settings: MethodSettings, centers: NDArray[np.float32]) -> None:
        super().__init__(data, settings)
        self.has_tags = data.has_tags
        coin = random_signs((data.bits,), generator(data.seed, "coin"))
        self.register_buffer("centers", torch.from_numpy(centers))
        self.register_buffer("coin", torch.from_numpy(coin))

    def target_codes(self, targets: Tensor) -> Tensor:
        """Return the code (N, bits) that each image should have, from its class (N,) or tags (N, T)."""
        if not self.has_tags:
            return self.centers[targets]
        votes = targets @ self.centers + 0.5 * self.coin
        return torch.where(votes >= 0, 1.0, -1.0).to(votes.dtype)

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the inner products with the centers (N, C)."""
        return embeddings @ self.centers.T


def random_signs(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    """Return +1 and -1, each with probability 1/2."""
    signs: NDArray[np.float32] = (random.integers(0, 2, shape) * 2 - 1).astype(np.float32)
    return signs
