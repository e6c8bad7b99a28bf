"""ADSH: a network for queries and separately learned codes of the database (Jiang and Li 2018)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import random_signs
from proxyhash.methods.coordinate_descent import cyclic_descent
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head
from proxyhash.utils.random import generator

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class AdshSettings(MethodSettings):
    """Settings of ADSH."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"agreement": 0.001}, {"agreement": 0.01}, {"agreement": 0.1})

    agreement: float = 0.01  # g; the authors' gamma of 200 for 2,000 queries is 0.1 / K of our means
    sweeps: int = 3


@register_method("adsh", title="ADSH", family="pairwise", year=2018, settings=AdshSettings, learns_from="classes")
class Adsh(HashingMethod):
    """Asymmetric deep supervised hashing, Jiang and Li 2018.

    The loss is the mean over i, j of (u_i.v_j / K - S_ij)^2, plus g mean_k (u_ik - v_ik)^2, with u (N, K) the outputs
    of the network and v (n, K) the codes of the training images, which form the database.

    S is 1 in a class and -r across, r the ratio of similar to dissimilar pairs, as in the authors' code; with -1 the
    many dissimilar pairs would outweigh the others. S is not written out: with one-hot classes Y, S = (1 + r) YY' - r,
    so that the sum over all j needs only V'V, Y'V and the sum of V. After each epoch V is updated bit by bit, each bit
    exactly. All training images are queries (the authors draw 2,000 a round). V starts as one random code per class
    (ours). New images are encoded by the network.
    """

    settings: AdshSettings
    codes: Tensor
    gram: Tensor
    sums: Tensor
    members: Tensor

    def __init__(self, data: TrainingData, settings: AdshSettings) -> None:
        super().__init__(data, settings)
        self.labels = data.require_class_labels().values
        self.ratio = pair_ratio(self.labels)
        start = random_signs((data.num_classes, data.bits), generator(data.seed, "adsh"))
        self.register_buffer("codes", torch.from_numpy(start[self.labels]))
        self.register_buffer("gram", torch.zeros(data.bits, data.bits))
        self.register_buffer("sums", torch.zeros(data.num_classes, data.bits))
        self.register_buffer("members", torch.from_numpy(np.bincount(self.labels, minlength=data.num_classes)))
        self._update_sums()

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch."""
        bits, count = embeddings.shape[1], len(self.codes)
        pulls = (1 + self.ratio) * self.sums[targets] - self.ratio * self.sums.sum(0)  # sum_j S_ij v_j
        totals = self.members[targets] + self.ratio**2 * (count - self.members[targets])  # sum_j S_ij^2
        squares = ((embeddings @ self.gram) * embeddings).sum(1) - 2 * bits * (embeddings * pulls).sum(1) + bits**2 * totals
        agreement = (embeddings - self.codes[indices]).square().mean()
        return squares.mean() / (count * bits**2) + self.settings.agreement * agreement

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of the database."""
        codes = database_step(self.codes.cpu().numpy(), embed().numpy(), self.labels, self.settings)
        self.codes.copy_(torch.from_numpy(codes))
        self._update_sums()

    def training_codes(self) -> Tensor:
        """Return V (n, bits)."""
        return self.codes

    def _update_sums(self) -> None:
        self.gram.copy_(self.codes.T @ self.codes)
        classes = torch.from_numpy(self.labels).to(self.codes.device)
        self.sums.zero_().index_add_(0, classes, self.codes)


def database_step(codes: Floats, embeddings: Floats, labels: NDArray[np.int64], settings: AdshSettings) -> Floats:
    """Return V (n, bits) after sweeps that lower mean_i sum_j (u_i.v_j - K S_ij)^2 / K^2 + g ||V - U||^2 / K."""
    bits, classes = embeddings.shape[1], np.eye(int(labels.max()) + 1, dtype=np.float32)[labels]
    ratio = pair_ratio(labels)
    pulls = (1 + ratio) * classes @ (classes.T @ embeddings) - ratio * embeddings.sum(0)  # sum_i S_ij u_i
    target = pulls / (bits * len(embeddings)) + settings.agreement / bits * embeddings
    return cyclic_descent(codes, target, embeddings.T @ embeddings / (bits**2 * len(embeddings)), settings.sweeps)


def pair_ratio(labels: NDArray[np.int64]) -> float:
    """Return the number of similar pairs divided by that of dissimilar pairs."""
    similar = float(np.square(np.bincount(labels).astype(np.float64)).sum())
    return similar / max(1.0, len(labels) ** 2 - similar)
