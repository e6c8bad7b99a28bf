"""SHC: centers that follow the similarity of classes in a classifier's predictions (Chen, Liu, Zhou, Ma et al. 2025)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from proxyhash.losses import bitwise_cross_entropy, quantization_loss
from proxyhash.methods.base import Floats, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.centers import HashCenters
from proxyhash.methods.registry import register_method
from proxyhash.proxies import ProxySet, design_proxies
from proxyhash.proxies.quality import measure_quality
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress
from proxyhash.utils.random import generator

Doubles = NDArray[np.float64]

EPOCHS, BATCH_SIZE, LR = 10, 256, 5e-3  # of the classifier
RESTARTS, FEW_CLASSES = 4, 32  # of the centers of few classes; those of 100 differ by 0.2 % of their loss between starts


@dataclass(frozen=True)
class ShcSettings(MethodSettings):
    """Settings of SHC: by default the authors'."""

    SEARCH_SPACE: ClassVar[SearchSpace] = ({"quantization": 1e-4}, {"quantization": 0.01}, {"quantization": 0.1})

    quantization: float = 1e-4  # lambda
    spread: float = 6.25e-5  # mu, of the inner products of centers
    min_distance: int | None = None  # between centers, in bits; None: the bound of Gilbert and Varshamov

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.quantization < 0 or self.spread < 0 or (self.min_distance is not None and self.min_distance < 1):
            raise InputError("quantization and spread may not be negative, and min_distance must be at least 1.")


@register_method("shc", title="SHC", family="centers", year=2025, settings=ShcSettings, learns_from="classes")
class Shc(HashCenters):
    """Semantic hash centers, Chen et al. 2025.

    A classifier learns the classes first. Its logits without the own class, after a softmax, are summed over the images of
    each class: row i of S says what class i is taken for. S becomes (S + S')/2, each row minus its mean and divided by its
    largest absolute value, and 1 on the diagonal. Centers h_i (C, K) of +1 and -1 minimize
    sum_{i != j} (S_ij - h_i.h_j / K)^2 + mu h_i.h_j, at a Hamming distance of at least d from each other, the least d for
    which sum_{j < d} (K choose j) >= 2^K / C. The loss is the binary cross-entropy between (nu + 1) / 2 (N, K) and the bits
    of the image's center, plus lambda times the mean of (|nu| - 1)^2.

    Checked against cc752424640/Deep-Hashing-with-Semantic-Hash-Centers-for-Image-Retrieval: `GenerateSimilarityMatrix.py`,
    `GenerateSemanticHashCenters.py` (mu = 0.625 / 10,000), `train.py` and `run.py`; not against the paper. Ours: the
    classifier is linear, on the given features, where the authors train a second ResNet-34 for 100 epochs, on a softmax of
    a softmax. The centers are found by annealing single bits, which lowers the same sum; the authors have an augmented
    Lagrangian of 30 steps from centers of distance d. Where d is out of reach of our best code, its distance is taken.
    Without features there is no S, and the centers are this code.
    """

    settings: ShcSettings

    def __init__(self, data: TrainingData, settings: ShcSettings) -> None:
        code = design_proxies(data.num_classes, data.bits, "code", seed=data.seed, progress=data.progress)
        similarity = None if data.features is None else classifier_similarity(data)
        centers = code.weights.copy() if similarity is None else semantic_centers(similarity, code, data, settings)
        super().__init__(data, settings, centers)
        quality = measure_quality(centers, None if similarity is None else symmetric(similarity))
        self.designed = ProxySet(centers.copy(), "shc", data.seed, quality)

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        loss = bitwise_cross_entropy(embeddings, self.target_codes(targets))
        return loss + self.settings.quantization * quantization_loss(embeddings)

    def proxies(self) -> ProxySet:
        """Return the centers."""
        return self.designed


def semantic_centers(similarity: Doubles, code: ProxySet, data: TrainingData, settings: ShcSettings) -> Floats:
    """Return centers (C, K) whose distances follow S (C, C)."""
    from proxyhash.proxies.bit_annealing import pairwise_distances  # imports numba
    from proxyhash.proxies.joint import MAX_CLASSES, corners_at_distances

    if data.num_classes > MAX_CLASSES:
        raise InputError(f"SHC holds all pairs of classes, so it is for at most {MAX_CLASSES:,} of them.")
    reached = int(code.quality.min_distance)
    if settings.min_distance is not None and settings.min_distance > reached:
        raise InputError(
            f"A minimal distance of {settings.min_distance} bits is out of reach for {data.num_classes} classes in "
            f"{data.bits} bits: ask for at most {reached}."
        )
    min_distance = min(settings.min_distance or gilbert_varshamov_distance(data.num_classes, data.bits), reached)
    targets = center_distances(similarity, data.bits, settings.spread)

    def anneal(start: int) -> Floats:
        random = generator(data.seed, "shc", "centers", start)
        return corners_at_distances(targets, data.bits, min_distance, lambda: code.weights, random, data.progress)

    starts = RESTARTS if data.num_classes <= FEW_CLASSES else 1
    return min(map(anneal, range(starts)), key=lambda found: float(np.square(pairwise_distances(found) - targets).sum()))


def gilbert_varshamov_distance(classes: int, bits: int) -> int:
    """Return the least d for which sum_{j < d} (K choose j) >= 2^K / C, the authors' distance of C centers of K bits.

    >>> gilbert_varshamov_distance(100, 32)
    10
    """
    distance, words = 1, 1  # in a ball of radius d - 1
    while classes * words < 2**bits:
        words += comb(bits, distance)
        distance += 1
    return distance


def center_distances(similarity: Doubles, bits: int, spread: float) -> Doubles:
    """Return the distances (C, C) at which (S_ij - h_i.h_j / K)^2 + mu h_i.h_j is least: K (1 - S_ij) / 2 + mu K^2 / 4.

    The sum over i != j differs from that of the squared differences to these distances by a factor and a constant. S_ij and
    S_ji share one distance, so that their mean counts.
    """
    return bits * (1 - symmetric(similarity)) / 2 + spread * bits**2 / 4


def symmetric(similarity: Doubles) -> Doubles:
    """Return the mean of S (C, C) and its transpose."""
    return (similarity + similarity.T) / 2


def classifier_similarity(data: TrainingData) -> Doubles:
    """Return S (C, C) from the predictions of a linear classifier of the features."""
    features, labels = data.load_features(), data.require_class_labels()
    known = labels.labeled()
    network = train_classifier(features, labels.values, known, data.num_classes, data.seed, data.progress)
    sums = np.zeros((data.num_classes, data.num_classes))
    with torch.no_grad():
        for rows in np.array_split(known, max(1, len(known) // BATCH_SIZE)):
            add_confusion(sums, network(torch.from_numpy(features[rows])).double().numpy(), labels.values[rows])
    return normalize_confusion(sums)


def add_confusion(sums: Doubles, logits: Doubles, labels: NDArray[np.int64]) -> None:
    """Add the softmax of logits (n, C) without the own class to the row of the class, in place."""
    masked = logits.copy()
    masked[np.arange(len(labels)), labels] = -np.inf
    powers = np.exp(masked - masked.max(1, keepdims=True))
    np.add.at(sums, labels, powers / powers.sum(1, keepdims=True))


def normalize_confusion(sums: Doubles) -> Doubles:
    """Return S from sums (C, C) of `add_confusion`; a row of equal values becomes 0."""
    centered = symmetric(sums)
    centered -= centered.mean(1, keepdims=True)  # the diagonal, still 0, counts too
    scale = np.abs(centered).max(1, keepdims=True)
    similarity: Doubles = np.divide(centered, scale, out=np.zeros_like(centered), where=scale > 0)
    np.fill_diagonal(similarity, 1)
    return similarity


def train_classifier(
    features: Floats, labels: NDArray[np.int64], known: NDArray[np.int64], classes: int, seed: int, progress: Progress
) -> nn.Sequential:
    """Return a linear classifier of normalized features, learned from the images `known`, in evaluation mode."""
    linear = nn.Linear(features.shape[1], classes)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    network = nn.Sequential(nn.BatchNorm1d(features.shape[1], affine=False), linear)
    optimizer = torch.optim.AdamW(linear.parameters(), LR)
    batches = list(_classifier_batches(known, seed))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(batches))
    for step, rows in enumerate(batches, start=1):
        optimizer.zero_grad()
        loss = cross_entropy(network(torch.from_numpy(features[rows])), torch.from_numpy(labels[rows]))
        loss.backward()
        optimizer.step()
        schedule.step()
        progress("Learning the similarity of classes", step / len(batches))
    return network.eval()


def _classifier_batches(known: NDArray[np.int64], seed: int) -> Iterator[NDArray[np.int64]]:
    for epoch in range(EPOCHS):
        shuffled = generator(seed, "shc", "classifier", epoch).permutation(known)
        yield from np.array_split(shuffled, max(1, len(shuffled) // BATCH_SIZE))
