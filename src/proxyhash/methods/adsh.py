"""ADSH: a network for queries and separately learned codes of the database (Jiang and Li 2018)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

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
from proxyhash.utils.validation import check_int

Floats = NDArray[np.float32]
PASSES = 3  # over the queries of a round, the authors'


@dataclass(frozen=True)
class AdshSettings(MethodSettings):
    """Settings of ADSH: by default the authors'; None stands for what `start` needs.

    `start=classes` is ours, and stronger: V starts as one random code per class, all images are queries, and V is updated
    once an epoch.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"gamma": 200.0}, {"gamma": 20.0}, {"gamma": 2000.0})

    start: Literal["zero", "classes"] = "zero"  # of V
    queries: int | None = None  # of a round; None: 2,000, or with start=classes all images, once an epoch
    gamma: float = 200.0  # weight of ||u - v||^2 beside the sum over queries and database
    agreement: float | None = None  # of a mean over bits, in both steps; None: that of gamma, or 0.01 with start=classes
    sweeps: int | None = None  # over the bits; None: 1, or 3 with start=classes

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:  # noqa: ARG003
        """Return what is tried, which depends on the start."""
        if (fixed or {}).get("start") == "classes":
            return {"agreement": 0.001}, {"agreement": 0.01}, {"agreement": 0.1}
        return cls.SEARCH_SPACE

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with those filled in that depend on the start."""
        classes = self.start == "classes"
        return replace(
            self,
            queries=2_000 if self.queries is None and not classes else self.queries,
            agreement=0.01 if self.agreement is None and classes else self.agreement,
            sweeps=(3 if classes else 1) if self.sweeps is None else self.sweeps,
        )


@register_method(
    "adsh", title="ADSH", family="pairwise", year=2018, revision=2, settings=AdshSettings, learns_from="classes"
)
class Adsh(HashingMethod):
    """Asymmetric deep supervised hashing, Jiang and Li 2018.

    The loss is the mean over i, j of (u_i.v_j / K - S_ij)^2, plus g mean_k (u_ik - v_ik)^2, with u (N, K) the outputs
    of the network and v (n, K) the codes of the training images, which form the database. S is 1 in a class and -r across,
    r the ratio of similar to dissimilar pairs. V starts at zero. The last 2,000 images that were seen are the queries of a
    round. After three times as many, and at the end of an epoch, V is updated bit by bit from their outputs, each bit
    exactly. In units of the mean, g is gamma / (n K) for the network and gamma / (m K) for V, m the number of queries.

    Checked against jiangqy/ADSH-AAAI2018 (`ADSH_pytorch/ADSH_CIFAR_10.py`, `utils/adsh_loss.py`,
    `ADSH_matlab/process_ADSH.m`): S, gamma = 200 for 2,000 queries, V = 0, one sweep, three passes a round. They pass three
    times over the same 2,000 images; here a round takes three times as many, each once. r is that of all pairs, not of a
    round.

    S is not written out: with one-hot classes Y, S = (1 + r) YY' - r, so that the sum over all j needs only V'V, Y'V and
    the sum of V. New images are encoded by the network.
    """

    waits_for_device = True  # to know whether a round is over
    settings: AdshSettings
    codes: Tensor
    gram: Tensor
    sums: Tensor
    members: Tensor
    recent: Tensor
    recent_indices: Tensor
    seen: Tensor

    def __init__(self, data: TrainingData, settings: AdshSettings) -> None:
        super().__init__(data, settings)
        self.labels, count = data.require_class_labels().values, len(data.require_labels())
        self.ratio = pair_ratio(self.labels)
        self.queries = None if settings.queries is None else min(check_int("queries", settings.queries, 1), count)
        self.agreement = settings.gamma / (count * data.bits) if settings.agreement is None else settings.agreement
        start = random_signs((data.num_classes, data.bits), generator(data.seed, "adsh"))[self.labels]
        self.register_buffer("codes", torch.from_numpy(start if settings.start == "classes" else np.zeros_like(start)))
        self.register_buffer("gram", torch.zeros(data.bits, data.bits))
        self.register_buffer("sums", torch.zeros(data.num_classes, data.bits))
        self.register_buffer("members", torch.from_numpy(np.bincount(self.labels, minlength=data.num_classes)))
        if self.queries is not None:
            self.register_buffer("recent", torch.zeros(self.queries, data.bits))  # outputs of the queries, a ring
            self.register_buffer("recent_indices", torch.full((self.queries,), -1))
            self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))  # images: ever, and in this round
        self._update_sums()

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch; in training, first end a round that is over."""
        if self.queries is not None and self.training:
            if int(self.seen[1]) >= PASSES * self.queries:
                self._end_round(self.queries)
            self._record(embeddings.detach(), indices, self.queries)
        bits, count = embeddings.shape[1], len(self.codes)
        pulls = (1 + self.ratio) * self.sums[targets] - self.ratio * self.sums.sum(0)  # sum_j S_ij v_j
        totals = self.members[targets] + self.ratio**2 * (count - self.members[targets])  # sum_j S_ij^2
        squares = ((embeddings @ self.gram) * embeddings).sum(1) - 2 * bits * (embeddings * pulls).sum(1) + bits**2 * totals
        agreement = (embeddings - self.codes[indices]).square().mean()
        return squares.mean() / (count * bits**2) + self.agreement * agreement

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Update the codes of the database: from the images of this round, or from all."""
        if self.queries is None:
            assert self.settings.agreement is not None
            self._update_codes(embed().numpy(), np.arange(len(self.codes)), self.settings.agreement)
        elif self.seen[1]:
            self._end_round(self.queries)

    def training_codes(self) -> Tensor:
        """Return V (n, bits)."""
        return self.codes

    def _record(self, outputs: Tensor, indices: Tensor, queries: int) -> None:
        """Keep the outputs of a batch in place of the oldest ones."""
        last = slice(max(0, len(indices) - queries), None)
        slots = (self.seen[0] + torch.arange(len(indices), device=indices.device)[last]) % queries
        self.recent[slots], self.recent_indices[slots] = outputs[last].to(self.recent), indices[last]
        self.seen += len(indices)

    def _end_round(self, queries: int) -> None:
        """Update V from the last images that were seen, and begin a new round."""
        known = self.recent_indices >= 0
        agreement = self.settings.agreement
        if agreement is None:
            agreement = self.settings.gamma / (queries * self.codes.shape[1])
        self._update_codes(self.recent[known].float().cpu().numpy(), self.recent_indices[known].cpu().numpy(), agreement)
        self.seen[1] = 0

    def _update_codes(self, outputs: Floats, indices: NDArray[np.int64], agreement: float) -> None:
        assert self.settings.sweeps is not None
        codes = self.codes.float().cpu().numpy()
        self.codes.copy_(
            torch.from_numpy(database_step(codes, outputs, indices, self.labels, agreement, self.settings.sweeps))
        )
        self._update_sums()

    def _update_sums(self) -> None:
        self.gram.copy_(self.codes.T @ self.codes)
        classes = torch.from_numpy(self.labels).to(self.codes.device)
        self.sums.zero_().index_add_(0, classes, self.codes)


def database_step(
    codes: Floats,
    outputs: Floats,
    indices: NDArray[np.int64],
    labels: NDArray[np.int64],
    agreement: float,
    sweeps: int,
) -> Floats:
    """Return V (n, bits) after sweeps that lower mean_i sum_j (u_i.v_j - K S_ij)^2 / K^2 + g sum_i ||v_i - u_i||^2 / K.

    The sums over i are those of queries: `outputs` u (m, bits) of the images `indices` (m,).
    """
    bits, classes = outputs.shape[1], np.eye(int(labels.max()) + 1, dtype=np.float32)[labels[indices]]
    ratio = pair_ratio(labels)
    pulls = (1 + ratio) * (classes.T @ outputs)[labels] - ratio * outputs.sum(0)  # sum_i S_ij u_i
    target = (pulls / (bits * len(outputs))).astype(np.float32)
    np.add.at(target, indices, np.float32(agreement / bits) * outputs)
    return cyclic_descent(codes, target, outputs.T @ outputs / (bits**2 * len(outputs)), sweeps)


def pair_ratio(labels: NDArray[np.int64]) -> float:
    """Return the number of similar pairs divided by that of dissimilar pairs."""
    similar = float(np.square(np.bincount(labels).astype(np.float64)).sum())
    return similar / max(1.0, len(labels) ** 2 - similar)
