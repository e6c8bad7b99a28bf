"""MDSH: cross-entropy to centers with a guaranteed distance, and similar pairs (Wang, Pan, Liu et al. 2023)."""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, normalize, one_hot, softplus

from proxyhash.losses import quantization_loss
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import BatchNormHashHead, HashHead, Head, HeadConfig
from proxyhash.proxies import ProxySet, design_proxies
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class MdshSettings(MethodSettings):
    """Settings of MDSH: by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = (  # in a training of at most 9 epochs, pairs=0.1 alone would have no effect
        {},
        {"pairs_from": 3},
        {"pairs_from": 3, "pairs": 0.1},
    )

    loss: Literal["binary", "softmax"] = "binary"  # softmax: the cross-entropy of a classifier (ours)
    pairs: float = 1.0  # beta, of the similar pairs; 0 for none
    pairs_from: int = 9  # epochs without pairs
    momentum: float = 0.9  # of the momentum encoder
    quantization: float = 1e-4  # lambda
    batch_norm: bool = True  # before the tanh

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0 <= self.momentum < 1 or self.pairs < 0 or self.pairs_from < 0:
            raise InputError("momentum must be at least 0 and below 1, and neither pairs nor pairs_from may be negative.")


@register_method("mdsh", title="MDSH", family="centers", year=2023, revision=2, settings=MdshSettings, learns_from="classes")
class Mdsh(HashingMethod):
    """MDSH, Wang et al. 2023.

    The loss is the mean over images and classes of -(s log p + (1 - s) log(1 - p)), with p the softmax of
    sqrt(K) cos(nu, c_k) and s one-hot classes, plus lambda times the mean of (|nu| - 1)^2, nu = tanh(BN(L'q)) (N, K).
    After 9 epochs beta times the pair loss joins, the mean of log(1 + exp((1 - cos(nu_i, v_j)) / 2)) over pairs of an image
    of the batch and one of its class in the whole training set. v (n, K) are the embeddings by a momentum encoder, from
    when an image was last in a batch.

    Checked against Wangld5/Center-Hashing: `loss/ourLoss.py`, `model/Net.py`, `scripts/utils.py`, `scripts/train_CUB.py`
    and `optimizeAccel.py`. The authors train up to 1,000 epochs with early stopping, so that 9 epochs are few; in a
    training of 12 epochs the pairs join for the last 3. Ours: the centers, which the authors optimize to a minimum distance
    from the Gilbert-Varshamov bound, are the best code that we can construct, whose distance is never less.
    """

    waits_for_device = True  # for the number of the epoch, and the classes of a batch
    settings: MdshSettings
    centers: Tensor
    epochs: Tensor
    bank: Tensor
    slots: Tensor

    def __init__(self, data: TrainingData, settings: MdshSettings) -> None:
        super().__init__(data, settings)
        self.designed = design_proxies(data.num_classes, data.bits, "code", seed=data.seed, progress=data.progress)
        self.register_buffer("centers", torch.from_numpy(self.designed.weights.copy()))
        if settings.pairs:
            self.momentum = settings.momentum
            labels = data.require_class_labels().values
            self.ends = np.bincount(labels, minlength=data.num_classes).cumsum().tolist()
            slots = torch.from_numpy(labels.argsort(kind="stable").argsort())
            self.register_buffer("slots", slots, persistent=False)  # of each image in the bank, where a class is a slice
            self.register_buffer("bank", torch.zeros(len(labels), data.bits))  # v / |v|, 0 for images that were in no batch
            self.register_buffer("epochs", torch.zeros((), dtype=torch.long))

    def build_head(self, config: HeadConfig) -> Head:
        """Return the head with tanh, by default after batch normalization."""
        return BatchNormHashHead(config) if self.settings.batch_norm else HashHead(config)

    def observe(self, embeddings: Tensor, indices: Tensor) -> None:
        """Store the embeddings by the momentum encoder."""
        self.bank[self.slots[indices]] = normalize(embeddings)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss = self._center_loss(embeddings, targets) + self.settings.quantization * quantization_loss(embeddings)
        if self.settings.pairs and self.epochs >= self.settings.pairs_from:
            loss = loss + self.settings.pairs * self._pair_loss(embeddings, targets)
        return loss

    def _center_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        logits = sqrt(embeddings.shape[1]) * self.scores(embeddings)
        if self.settings.loss == "softmax":
            return cross_entropy(logits, targets)
        likelihood = log_softmax(logits, dim=1)
        unlikelihood = (-torch.expm1(likelihood)).clamp(min=1e-12).log()  # log(1 - p), also for p that is rounded to 1
        own = one_hot(targets, len(self.centers))
        return -(own * likelihood + (1 - own) * unlikelihood).mean()

    def _pair_loss(self, embeddings: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over similar pairs; one class at a time, because few of all pairs are similar."""
        nu, total, count = normalize(embeddings), embeddings.sum() * 0, 0
        for label in targets.unique().tolist():
            bank = self.bank[self.ends[label - 1] if label else 0 : self.ends[label]]
            cosines = nu[targets == label] @ bank[bank.any(1)].T
            total, count = total + softplus((1 - cosines) / 2).sum(), count + cosines.numel()
        return total / max(count, 1)

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Count the epochs."""
        if self.settings.pairs:
            self.epochs += 1

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines (N, C)."""
        return normalize(embeddings) @ normalize(self.centers).T

    def proxies(self) -> ProxySet:
        """Return the centers."""
        return self.designed
