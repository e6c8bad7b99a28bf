"""RelaHash: cross-entropy of positions relative to a batch (Minh, Viet, Son, Anh and Jaafar 2023)."""

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import log_softmax, normalize, one_hot

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import random_signs
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import BatchNormHead, HeadConfig
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator

FIRST_DISTANCE, STEP = 0.61, 0.01  # of centroids, as shares of the code
MAX_TRIES = 10_000  # draws that are too near before the distance is reduced
DRAWN_AT_ONCE = 1000


@dataclass(frozen=True)
class RelaHashSettings(MethodSettings):
    """Settings of RelaHash: by default the authors'.

    `scale` is the length of an image's relative position, the root of the mean square over a batch. The authors' code has
    1 / sqrt(N), which is 1/4 for its batches of 16 images.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"beta": 8.0}, {"beta": 50.0}, {"beta": 50.0, "margin": 0.1})

    beta: float = 8.0
    margin: float = 0.5
    scale: float = 0.25

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.beta > 0 or not self.scale > 0:
            raise InputError("beta and scale must be above 0.")


@register_method("relahash", title="RelaHash", family="centers", year=2023, settings=RelaHashSettings)
class RelaHash(HashingMethod):
    """RelaHash, Minh, Viet, Son, Anh and Jaafar 2023.

    The loss is the softmax cross-entropy of beta (z*.c_k / |c_k| - m y_k), with z* = gamma (z - mu) / |z - mu| of a batch z
    (N, K), the batch-normalized output of a linear map: mu is the mean of all its entries, and |.| the root of the sum of
    all squares. y are one-hot classes or tags. The target of an image with several tags is y / sum(y), that of an image
    without tags is the same for all.

    The centroids c_k of +1 and -1 are drawn one after another, each at least 61 % of the code from all before. After every
    10,000 draws that are too near, the distance is reduced by 1 %.

    Checked against thaiminhpv/RelaHash: `networks/relative_similarity.py`, `networks/loss.py`, `networks/model.py`,
    `hashing/centroids_generator.py` and `main.py`, whose defaults are beta = 8, m = 0.5, gamma = 1 and batches of 16; its
    notebook has beta = 50. Of the paper only the abstract could be read. Ours: gamma is sqrt(N / 16), the authors' 1 for
    their batches, because logits would shrink with the batch otherwise. The authors give up below 20 % of the code; here
    the distance is reduced further.
    """

    settings: RelaHashSettings
    centroids: Tensor

    def __init__(self, data: TrainingData, settings: RelaHashSettings) -> None:
        super().__init__(data, settings)
        self.has_tags = data.has_tags
        drawn = draw_centroids(data.num_classes, data.bits, generator(data.seed, "relahash"))
        self.register_buffer("centroids", torch.from_numpy(drawn))

    def build_head(self, config: HeadConfig) -> BatchNormHead:
        """Return a linear map with batch normalization."""
        return BatchNormHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        logits = self.scores(self._relative_positions(embeddings))
        present = (targets if self.has_tags else one_hot(targets, len(self.centroids))).to(logits.dtype)
        likelihood = log_softmax(self.settings.beta * (logits - self.settings.margin * present), dim=1)
        wanted = torch.where(present.any(1, keepdim=True), present, 1.0)
        return -(normalize(wanted, p=1) * likelihood).sum(1).mean()

    def _relative_positions(self, embeddings: Tensor) -> Tensor:
        centered = embeddings - embeddings.mean()
        gamma = self.settings.scale * sqrt(len(embeddings))
        positions: Tensor = gamma * centered / centered.norm().clamp(min=1e-12)
        return positions

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the inner products with the centroids of length 1 (N, C)."""
        return embeddings @ normalize(self.centroids).T


def draw_centroids(classes: int, bits: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Return centroids (C, bits) of +1 and -1 at a distance that is reduced until all are found, in random order."""
    found, far, tries = np.empty((0, bits), np.float32), FIRST_DISTANCE, 0
    while len(found) < classes:
        drawn = random_signs((min(DRAWN_AT_ONCE, MAX_TRIES - tries), bits), random)
        shares = (bits - drawn @ found.T).min(1, initial=2 * bits) / (2 * bits)
        accepted = np.flatnonzero(shares >= far)[:1]  # the rest is drawn again
        found = np.concatenate([found, drawn[accepted]])
        tries += int(accepted[0]) if len(accepted) else len(drawn)
        if tries == MAX_TRIES:
            tries, far = 0, far - STEP
    order: NDArray[np.float32] = found[random.permutation(classes)]
    return order
