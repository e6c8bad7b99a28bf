"""Embeddings trained around proxies, sections 3 and 4: the paper's own method, and what it is compared with."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.proxies import ProxySet, class_mean_similarity, design_proxies, list_kinds, tag_similarity
from proxyhash.proxies.kinds import get_kind
from proxyhash.proxies.quality import measure_quality
from proxyhash.training.losses import (
    balanced_binary_cross_entropy,
    bitwise_cross_entropy,
    cosine_cross_entropy,
    hamming_triplet,
    margin_in_bits,
    nca,
    proxy_cross_entropy,
    tag_frequencies,
)
from proxyhash.training.losses.products import proxy_scores
from proxyhash.training.objectives.objective import Objective, Task
from proxyhash.training.objectives.registry import objective
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

TAU_OF_CLASSES, TAU_OF_TAGS = 6.0, 0.5
PER_CLASS, PAIRS = 4, 2


@dataclass(frozen=True)
class ProxySettings:
    """How the proxy loss is scaled, and how much of the triplet loss is added to it."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"tau": 4.0}, {"tau": 6.0}, {"tau": 10.0})
    TRIES_FOR_TAGS: ClassVar[tuple[dict[str, Any], ...]] = ({"tau": 0.3}, {"tau": 1.0}, {"tau": 4.0})
    TRIES_WITH: ClassVar[dict[str, tuple[dict[str, Any], ...]]] = {  # of rows that have this setting
        "triplet": ({"margin": 0.03125}, {"margin": 0.125}, {"margin": 0.25}),  # seen classes want little, unseen ones much
        "loss": ({},),
    }

    tau: float = 0.0  # logits are (tau / d) w.nu; the larger, the sooner the loss stops pushing nu; 0: what suits the labels
    triplet: float = 0.0  # lambda of the joint loss; the paper's best is 1 to 10
    margin: float = 0.0  # of the triplet loss, in bits, or below 1 as a share of the code; 0: a sixteenth
    per_class: int | None = None  # images of a class in a batch, to form triplets; 0: as chance has it; None: what suits
    loss: Literal["softmax", "nca", "cosine", "bits"] = "softmax"  # of single labels; the last two are those of followers
    similarity: Literal["auto", "means", "tags"] = "auto"  # of classes: from mean features, or from shared tags

    def settled(self, *, tags: bool, finetunes: bool) -> Self:
        """Return the settings as they are used: what did best on held-out images of CIFAR-100, and of Corel-5K.

        An image has several tags and cannot be at all their corners. With a small tau the loss of every tag is nearly
        linear, and nu goes where most of them pull; with a large one the tags that are reached already do not count.

        Where the backbone learns, four images of a class in a batch retrieved worse than two, likely because its batch
        normalization then sees few classes at a time, which is not what it meets afterwards.
        """
        tau = self.tau or (TAU_OF_TAGS if tags else TAU_OF_CLASSES)
        usual = PAIRS if finetunes and self.triplet else PER_CLASS
        return replace(self, tau=tau, per_class=usual if self.per_class is None else self.per_class)


@dataclass(frozen=True)
class JointSettings(ProxySettings):
    """Settings of the kind `joint`: also its minimal distance."""

    distance_share: float | None = None  # minimal distance as a share of that of `code`; None: 0.5


_BY_CLASS = {"softmax": proxy_cross_entropy, "nca": nca, "cosine": cosine_cross_entropy}


class ProxyObjective(Objective):
    """L = L_p + lambda L_t around proxies that are fixed, or learned if that is their kind."""

    frequencies: Tensor

    def __init__(self, proxies: ProxySet, settings: ProxySettings, frequencies: Tensor | None = None) -> None:
        super().__init__()
        _check_loss(settings.loss, proxies, tags=frequencies is not None)
        self.designed, self.settings = proxies, settings
        self.per_class = (settings.per_class or 0) if settings.triplet and frequencies is None else 0
        self.weights = nn.Parameter(torch.from_numpy(proxies.weights.copy()), requires_grad=proxies.trainable)
        self.register_buffer("frequencies", torch.zeros(0) if frequencies is None else frequencies)

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the joint loss, eq. (jointloss); lambda = 0 leaves the proxies alone."""
        settings = self.settings
        loss = self._proxy_loss(nu, targets)
        if settings.triplet:
            loss = loss + settings.triplet * hamming_triplet(nu, targets, margin_in_bits(settings.margin, nu.shape[1]))
        return loss

    def _proxy_loss(self, nu: Tensor, targets: Tensor) -> Tensor:
        tau, weights = self.settings.tau, self.weights
        if len(self.frequencies):
            return balanced_binary_cross_entropy(nu, targets, weights, self.frequencies, tau)
        if self.settings.loss == "bits":
            return bitwise_cross_entropy(nu, weights[targets.long()])
        return _BY_CLASS[self.settings.loss](nu, targets, weights, tau)

    def scores(self, nu: Tensor) -> Tensor:
        """Return the logits (N, C): the nearest proxy has the highest."""
        return proxy_scores(nu, self.weights, self.settings.tau)

    def proxies(self) -> ProxySet:
        """Return the proxies as they are now: designed, or as far as learned."""
        if not self.designed.trainable:
            return self.designed
        weights = self.weights.detach().cpu().numpy().astype(np.float32)
        return ProxySet(weights.copy(), self.designed.kind, self.designed.seed, measure_quality(weights))


def class_similarity(task: Task, source: str) -> NDArray[np.float64] | None:
    """Return how alike the classes are: from class means of q(x), eq. (similarity), or from tags that occur together."""
    if source not in ("auto", "means", "tags"):
        raise InputError(f"The similarity of classes comes from means or tags, not {source!r}.")
    if task.tags is not None and source != "means":
        return tag_similarity(task.tags)
    if source == "tags":
        raise InputError("Only tagged images have tags that occur together; use the similarity of class means.")
    if task.features is None:
        return None
    features = task.features()
    if task.labels is not None:
        return class_mean_similarity(features, task.labels)
    assert task.tags is not None
    image, tag = np.nonzero(task.tags)  # an image counts for each of its tags
    return class_mean_similarity(features[image], tag)


def _build(kind: str, task: Task, settings: ProxySettings) -> ProxyObjective:
    settings = settings.settled(tags=task.tags is not None, finetunes=task.finetunes)
    if settings.tau <= 0 or settings.triplet < 0 or settings.margin < 0:
        raise InputError("tau must be positive, and neither triplet nor margin may be negative.")
    if settings.per_class != 0:
        check_int("per_class", settings.per_class, 2)
    similarity = class_similarity(task, settings.similarity) if get_kind(kind).uses_similarity else None
    share = settings.distance_share if isinstance(settings, JointSettings) else None
    proxies = design_proxies(
        len(task.names), task.bits, kind, similarity, task.seed, distance_share=share, progress=task.progress
    )
    frequencies = None if task.tags is None else tag_frequencies(torch.from_numpy(task.tags))
    return ProxyObjective(proxies, settings, frequencies)


def _check_loss(loss: str, proxies: ProxySet, *, tags: bool) -> None:
    if loss not in (*_BY_CLASS, "bits"):
        raise InputError(f"The proxy loss is softmax, nca, cosine or bits, not {loss!r}.")
    if tags and loss != "softmax":
        raise InputError(f"Tagged images are learned by the balanced cross-entropy; the loss {loss} is for single labels.")
    if loss == "bits" and not proxies.binary:
        raise InputError(f"The loss bits needs proxies of +1 and -1, and those of the kind {proxies.kind} are not.")


def _register(kind: str, settings: type[ProxySettings]) -> None:
    @objective(kind, f"cross-entropy around {kind} proxies", settings)
    def build(task: Task, settings: ProxySettings) -> ProxyObjective:
        return _build(kind, task, settings)


for _kind in list_kinds():
    _register(_kind, JointSettings if _kind == "joint" else ProxySettings)
