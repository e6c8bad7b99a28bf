"""Fixed targets in Hamming space: a code for each class, and for several tags the vote of theirs."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.training.objectives import Objective, Task
from proxyhash.utils.random import generator


class Centres(Objective):
    """An objective around `centres` (C, bits) of +1 and -1.

    An image with several tags goes to the majority vote of their centres; a tied bit is decided by a coin thrown once for
    all images.
    """

    centres: Tensor
    coin: Tensor

    def __init__(self, task: Task, centres: NDArray[np.float32]) -> None:
        super().__init__()
        self.tagged = task.tags is not None
        coin = random_signs((task.bits,), generator(task.seed, "coin"))
        self.register_buffer("centres", torch.from_numpy(centres))
        self.register_buffer("coin", torch.from_numpy(coin))

    def goal(self, targets: Tensor) -> Tensor:
        """Return the code (N, bits) that each image should have, from its class (N,) or tags (N, T)."""
        if not self.tagged:
            return self.centres[targets]
        votes = targets @ self.centres + 0.5 * self.coin
        return torch.where(votes >= 0, 1.0, -1.0)

    def scores(self, nu: Tensor) -> Tensor:
        """Return the inner products with the centres (N, C)."""
        return nu @ self.centres.T


def random_signs(shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    """Return +1 and -1, each with probability 1/2."""
    signs: NDArray[np.float32] = (random.integers(0, 2, shape) * 2 - 1).astype(np.float32)
    return signs
