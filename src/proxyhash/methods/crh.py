"""CRH: classes reassigned to a fixed codebook between epochs (Yin, Yin, Hou, Liu, Chen and Zhang 2026)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log, sqrt
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from proxyhash.losses import quantization_loss
from proxyhash.methods.base import Floats, HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import random_signs
from proxyhash.methods.orthohash import margin_cross_entropy
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head, HeadConfig, LinearHead
from proxyhash.proxies import ProxySet
from proxyhash.proxies.quality import measure_quality
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator
from proxyhash.utils.validation import check_int

Doubles = NDArray[np.float64]
Positions = NDArray[np.int64]

MAX_DRAWN_BITS = 62  # of a subcode that is drawn as a number; longer ones at random are distinct


@dataclass(frozen=True)
class CrhSettings(MethodSettings):
    """Settings of CRH: by default the authors', as far as they could be looked up.

    `codewords` is the number of subcodes of each part of the code, as a multiple of the number of classes.
    """

    SEARCH_SPACE: ClassVar[SearchSpace] = ({}, {"margin": 0.5}, {"scale": 16.0})

    scale: float | None = None  # s; None: sqrt(2) log(C - 1)
    margin: float = 0.2
    quantization: float | None = None  # lambda; None: 0.1, or 0 for tags
    codewords: int = 2
    assignment: Literal["greedy", "hungarian"] = "greedy"
    every_epoch_until: int = 20  # classes are reassigned after each of the first epochs
    interval: int = 5  # and after every so many epochs later

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_int("codewords", self.codewords, 1)
        check_int("every_epoch_until", self.every_epoch_until, 0)
        check_int("interval", self.interval, 1)

    def resolve(self, *, tags: bool, finetune: bool) -> Self:  # noqa: ARG002
        """Return the settings with the weight of the quantization filled in."""
        default = 0.0 if tags else 0.1
        return replace(self, quantization=default if self.quantization is None else self.quantization)


@register_method("crh", title="CRH", family="centers", year=2026, settings=CrhSettings)
class Crh(HashingMethod):
    """Center-reassigned hashing, Yin et al. 2026.

    The loss is the softmax cross-entropy of s (cos(u, c_k) - m y_k), u (N, K) linear, as in OrthoHash, with the target
    y / sum(y), plus lambda times the mean of (|tanh u| - 1)^2. A code has H = K / d parts, d the least divisor of K with
    2^d >= M = 2 C. Each part has M distinct subcodes z of d bits, drawn at random; a center c_k is one of them for each
    part, at first the k-th. Between epochs each part assigns the classes anew, one to one: the cost of z for class k is the
    mean of ||sign(u) - z||^2 over its images, where an image with q tags counts 1 / q for each. In random order each class
    takes the subcode of the least cost among those that are left (greedy), or the sum of costs is least (hungarian).

    The paper and its authors' code (iFamilyi/CRH) could not be read. Loss, codebook, cost, greedy assignment, lambda, m, s
    and the epochs of reassignment are those that an independent implementation states as the paper's equations 1 to 8 and
    the settings of that code; the authors' summary of the paper agrees with it in M, d, loss, cost and both assignments.
    This implementation also says that the code picks its codebook from up to 1,000 candidates, which is not done here.
    Ours: codes are computed after an epoch, not collected during it; s for two classes is that for three; a code too short
    for M words has fewer.
    """

    settings: CrhSettings
    codebook: Tensor
    centers: Tensor
    epochs: Tensor

    def __init__(self, data: TrainingData, settings: CrhSettings) -> None:
        super().__init__(data, settings)
        self.labels, self.seed, self.has_tags = data.require_labels(), data.seed, data.has_tags
        self.quantization = settings.quantization or 0.0
        self.scale = sqrt(2) * log(max(2, data.num_classes - 1)) if settings.scale is None else settings.scale
        codebook = draw_codebook(data.num_classes, data.bits, settings.codewords, generator(data.seed, "crh", "codebook"))
        self.register_buffer("codebook", torch.from_numpy(codebook))
        first = np.tile(np.arange(data.num_classes), (len(codebook), 1))
        self.register_buffer("centers", torch.from_numpy(compose_centers(codebook, first)))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))

    def build_head(self, config: HeadConfig) -> Head:
        """Return a linear map."""
        return LinearHead(config)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        cosines = self.scores(embeddings)
        present = (targets if self.has_tags else one_hot(targets, len(self.centers))).to(cosines.dtype)
        loss = margin_cross_entropy(cosines, present, self.scale, self.settings.margin)
        return loss + self.quantization * quantization_loss(torch.tanh(embeddings))

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:  # noqa: ARG002
        """Assign the classes anew, in the epochs in which this is done."""
        self.epochs += 1
        epoch = int(self.epochs)
        if epoch > self.settings.every_epoch_until and epoch % self.settings.interval:
            return
        images, classes = self.labels.nonzero()
        means = class_mean_signs(embed().numpy(), images, classes, len(self.centers))
        codebook = self.codebook.cpu().numpy()
        random = generator(self.seed, "crh", "order", epoch)
        assigned = np.stack([self._assign(costs, random) for costs in assignment_costs(means, codebook)])
        self.centers.copy_(torch.from_numpy(compose_centers(codebook, assigned)))

    def _assign(self, costs: Doubles, random: np.random.Generator) -> Positions:
        if self.settings.assignment == "hungarian":
            from scipy.optimize import linear_sum_assignment

            assigned: Positions = linear_sum_assignment(costs)[1].astype(np.int64)
            return assigned
        return greedy_assignment(costs, random.permutation(len(costs)))

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the cosines with the centers (N, C)."""
        return normalize(embeddings) @ normalize(self.centers).T

    def proxies(self) -> ProxySet:
        """Return the centers of this epoch."""
        centers = self.centers.detach().cpu().numpy().astype(np.float32)
        return ProxySet(centers.copy(), "crh", self.seed, measure_quality(centers))


def draw_codebook(classes: int, bits: int, codewords: int, random: np.random.Generator) -> Floats:
    """Return distinct subcodes (H, M, d) of +1 and -1, H d = K, for M = `codewords` times C, or 2^K if that is less."""
    if bits < MAX_DRAWN_BITS and classes > 2**bits:
        least = (classes - 1).bit_length()
        raise InputError(f"{classes} classes cannot have different codes of {bits} bits: use at least {least} bits.")
    words = min(codewords * classes, 2**bits)
    length = next(d for d in range(1, bits + 1) if bits % d == 0 and 2**d >= words)
    return np.stack([_distinct_words(words, length, random) for _ in range(bits // length)])


def _distinct_words(count: int, bits: int, random: np.random.Generator) -> Floats:
    if bits > MAX_DRAWN_BITS:
        return random_signs((count, bits), random)
    numbers = random.choice(2**bits, count, replace=False)
    signs: Floats = (2 * (numbers[:, None] >> np.arange(bits) & 1) - 1).astype(np.float32)
    return signs


def compose_centers(codebook: Floats, assigned: Positions) -> Floats:
    """Return the centers (C, K) of subcodes `assigned` (H, C) from a codebook (H, M, d)."""
    return np.concatenate([words[own] for words, own in zip(codebook, assigned, strict=True)], 1)


def class_mean_signs(outputs: Floats, images: Positions, classes: Positions, count: int) -> Doubles:
    """Return the mean sign (C, K) of the images of each class, where an image with q tags counts 1 / q; 0 without images."""
    weights = 1 / np.bincount(images, minlength=len(outputs))[images]
    sums, totals = np.zeros((count, outputs.shape[1])), np.bincount(classes, weights, minlength=count)
    np.add.at(sums, classes, weights[:, None] * np.where(outputs[images] >= 0, 1.0, -1.0))
    means: Doubles = sums / np.where(totals > 0, totals, 1)[:, None]
    return means


def assignment_costs(means: Doubles, codebook: Floats) -> Doubles:
    """Return the mean squared distances (H, C, M) of codes with mean signs (C, K) to subcodes (H, M, d): 2 d - 2 mean.z."""
    parts = np.split(means, len(codebook), axis=1)
    return np.stack([2 * words.shape[1] - 2 * part @ words.T for part, words in zip(parts, codebook, strict=True)])


def greedy_assignment(costs: Doubles, order: Positions) -> Positions:
    """Return a column for each row of costs (C, M): in this order, the cheapest one that no other row has taken."""
    left, assigned = costs.copy(), np.empty(len(costs), np.int64)
    for row in order:
        assigned[row] = left[row].argmin()
        left[:, assigned[row]] = np.inf
    return assigned
