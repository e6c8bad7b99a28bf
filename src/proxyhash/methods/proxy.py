"""Proxy losses of sections 3 and 4: the paper's method, and others around proxies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.losses import (
    BitwiseProxyLoss,
    CosineProxyLoss,
    HammingTripletLoss,
    ProxyLoss,
    ProxyNCALoss,
    TagProxyLoss,
    proxy_logits,
    tag_frequencies,
)
from proxyhash.losses.proxy_modules import TAU_OF_CLASSES, TAU_OF_TAGS, LossAroundProxies
from proxyhash.methods.base import HashingMethod, MethodSettings, SearchSpace, TrainingData
from proxyhash.methods.reassignment import (
    check_every_class_has_images,
    reassign,
    similarity_of_embeddings,
    similarity_of_features,
)
from proxyhash.methods.registry import register_method
from proxyhash.models.heads import Head
from proxyhash.proxies import ProxySet, class_mean_similarity, design_proxies, list_kinds, tag_similarity
from proxyhash.proxies.kinds import get_kind
from proxyhash.proxies.quality import measure_quality
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

SAMPLES_PER_CLASS, SAMPLES_PER_CLASS_FINETUNED = 4, 2


@dataclass(frozen=True)
class ProxySettings(MethodSettings):
    """Settings of the methods around proxies."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"tau": "d", "bias": True}}
    VALUES_BY_LENGTH: ClassVar[Mapping[str, tuple[Any, ...]]] = {"triplet": (1.0, 10.0)}  # the best ones of the paper

    tau: float | Literal["d"] | None = None  # of the logits (tau / d) w.nu; d: the paper's w.nu; None: 6, or 0.5 for tags
    triplet: float = 0.0  # lambda of the joint loss; the paper's best is 1 to 10
    margin: float | None = None  # of the triplet loss, in bits, or below 1 as a fraction of the code; None: 1/16
    samples_per_class: int | None = None  # in a batch, for triplets; 0: random batches; None: 4, or 2 when fine-tuning
    loss: Literal["softmax", "nca", "cosine", "bits"] = "softmax"  # of classes; cosine and bits are those of later methods
    similarity: Literal["auto", "means", "tags"] = "auto"  # of classes: from mean features, or from shared tags
    bias: bool = False  # learn a bias of each class in the softmax; the loss of tags has none

    @classmethod
    def search_space(cls, *, tags: bool = False, fixed: Mapping[str, Any] | None = None) -> SearchSpace:
        """Return margins beside the triplet loss, the defaults with another proxy loss, and otherwise values of tau."""
        fixed = fixed or {}
        if fixed.get("loss"):
            return ({},)
        if fixed.get("triplet"):
            return {"margin": 0.03125}, {"margin": 0.125}, {"margin": 0.25}  # small ones suit seen classes
        return tuple({"tau": tau} for tau in ((0.3, 1.0, 4.0) if tags else (4.0, 6.0, 10.0)))

    def resolve(self, *, tags: bool, finetune: bool) -> Self:
        """Return the settings with the defaults that did best on held-out images of CIFAR-100, and of Corel-5K.

        An image has several tags and cannot reach all their proxies. With a small tau the loss of every tag is nearly
        linear, and nu goes where most of them pull; with a large one the tags that are reached already do not count.

        With a backbone that is trained, four images of a class in a batch retrieved worse than two, likely because its
        batch normalization then sees few classes at a time.
        """
        tau = self.tau if self.tau is not None else (TAU_OF_TAGS if tags else TAU_OF_CLASSES)
        default = SAMPLES_PER_CLASS_FINETUNED if finetune and self.triplet else SAMPLES_PER_CLASS
        samples_per_class = default if self.samples_per_class is None else self.samples_per_class
        return replace(self, tau=tau, bias=self.bias and not tags, samples_per_class=samples_per_class)


@dataclass(frozen=True)
class AssignedSettings(ProxySettings):
    """Settings of `shclm` and `scode`, which assign given corners to the classes."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {**ProxySettings.PRESETS["paper"], "assignment": "greedy"}
    }

    assignment: Literal["anneal", "greedy", "faq"] = "anneal"  # solver; greedy swaps are the paper's
    reassign_every: int | None = None  # epochs, after which classes are assigned anew; None: never, as in the paper
    reassign_until: int = 4  # epochs; those after it train for the last assignment
    reassign_from: Literal["features", "embeddings"] = "features"  # what the last layer reads, or what it returns

    def __post_init__(self) -> None:
        """Check the epochs."""
        if self.reassign_every is not None:
            check_int("reassign_every", self.reassign_every, 1)
        check_int("reassign_until", self.reassign_until, 1)


@dataclass(frozen=True)
class JointSettings(ProxySettings):
    """Settings of `joint`, which keeps a minimum distance between all classes."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # the kind is not the paper's

    distance_share: float | None = None  # minimum distance as a share of that of `code`; None: 0.5


_BY_CLASS = {"nca": ProxyNCALoss, "cosine": CosineProxyLoss}
_SETTINGS_BY_KIND: dict[str, type[ProxySettings]] = {
    "shclm": AssignedSettings,
    "scode": AssignedSettings,
    "joint": JointSettings,
}


class ProxyMethod(HashingMethod):
    """Cross-entropy around proxies, section 3.3, with an optional triplet loss, section 4.4.

    The loss is L = L_p + lambda L_t, eq. (jointloss), on embeddings nu (N, K), around proxies w (C, K) that are fixed,
    or learned if that is their kind. L_p is the balanced binary cross-entropy for tags.
    """

    kind: ClassVar[str]  # of proxies
    settings: ProxySettings
    epochs: Tensor

    def __init__(self, data: TrainingData, settings: ProxySettings) -> None:
        super().__init__(data, settings)
        self.tau = _check_values(settings, data.bits)
        self.designed = _design(self.kind, data, settings)
        _check_loss(settings, self.designed, tags=data.has_tags)
        if not settings.triplet:
            self.samples_per_class = 0
        self.loss = _build_loss(data, settings, self.designed, self.tau)
        self.triplet_loss = HammingTripletLoss(settings.margin)
        self.checkpoint_names = {"loss.proxies": "weights"}
        if settings.bias:
            self.checkpoint_names["loss.bias"] = "bias"
        if data.has_tags:
            self.checkpoint_names["loss.frequencies"] = "frequencies"
        else:
            self.register_buffer("frequencies", torch.zeros(0))  # checkpoints have it
        assigned = settings if isinstance(settings, AssignedSettings) else AssignedSettings()
        self.reassignment = assigned if assigned.reassign_every is not None else None
        if self.reassignment:
            self.labels = data.require_labels()
            check_every_class_has_images(self.labels)
            self.register_buffer("epochs", torch.zeros((), dtype=torch.long))

    @property
    def weights(self) -> Tensor:
        """Return the proxies w (C, bits)."""
        return self.loss.proxies

    def forward(self, embeddings: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the joint loss, eq. (jointloss); with lambda = 0 it is the proxy loss."""
        loss: Tensor = self.loss(embeddings, targets)
        if self.settings.triplet:
            loss = loss + self.settings.triplet * self.triplet_loss(embeddings, targets)
        return loss

    def on_epoch_end(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Assign the proxies anew, in the epochs in which the settings ask for it."""
        settings = self.reassignment
        if settings is None or settings.reassign_every is None:
            return
        self.epochs += 1
        epoch = int(self.epochs)
        if epoch > settings.reassign_until or epoch % settings.reassign_every:
            return
        if settings.reassign_from == "features":
            similarity = similarity_of_features(embed, head, self.labels)
        else:
            similarity = similarity_of_embeddings(embed, self.labels)
        weights = reassign(similarity, self._weights_as_array(), settings.assignment, self.designed.seed)
        self.weights.copy_(torch.from_numpy(weights))

    def scores(self, embeddings: Tensor) -> Tensor:
        """Return the logits (N, C) without bias: the nearest proxy has the highest."""
        return proxy_logits(embeddings, self.weights, self.tau)

    def proxies(self) -> ProxySet:
        """Return the proxies: as designed, or as learned or reassigned so far."""
        if not self.designed.trainable and self.reassignment is None:
            return self.designed
        weights = self._weights_as_array()
        return ProxySet(weights, self.designed.kind, self.designed.seed, measure_quality(weights))

    def _weights_as_array(self) -> NDArray[np.float32]:
        return self.weights.detach().cpu().numpy().astype(np.float32)  # a copy


def class_similarity(data: TrainingData, source: str) -> NDArray[np.float64] | None:
    """Return the similarity of classes (C, C): from class means of q(x), eq. (similarity), or from tags that co-occur."""
    labels = data.require_labels()
    if isinstance(labels, TagLabels) and source != "means":
        return tag_similarity(labels.values)
    if source == "tags":
        raise InputError("Only tagged images have tags that occur together; use the similarity of class means.")
    if data.features is None:
        return None
    features = data.load_features()
    if isinstance(labels, ClassLabels):
        return class_mean_similarity(features, labels.values)
    images, tags = labels.nonzero()  # an image counts for each of its tags
    return class_mean_similarity(features[images], tags)


def _design(kind: str, data: TrainingData, settings: ProxySettings) -> ProxySet:
    similarity = class_similarity(data, settings.similarity) if get_kind(kind).uses_similarity else None
    options: dict[str, Any] = {}
    if isinstance(settings, JointSettings):
        options["distance_share"] = settings.distance_share
    if isinstance(settings, AssignedSettings):
        options["solver"] = settings.assignment
    return design_proxies(data.num_classes, data.bits, kind, similarity, data.seed, **options, progress=data.progress)


def _build_loss(data: TrainingData, settings: ProxySettings, proxies: ProxySet, tau: float) -> LossAroundProxies:
    if data.has_tags:
        frequencies = tag_frequencies(torch.from_numpy(data.require_labels().values))
        return TagProxyLoss(proxies, frequencies, tau=tau)
    if settings.loss == "bits":
        return BitwiseProxyLoss(proxies)
    if settings.loss == "softmax":
        return ProxyLoss(proxies, tau=tau, bias=settings.bias)
    return _BY_CLASS[settings.loss](proxies, tau=tau)


def _check_values(settings: ProxySettings, bits: int) -> float:
    """Return tau as a number once the values of the settings are checked."""
    tau = float(bits) if settings.tau == "d" else settings.tau
    if not isinstance(tau, int | float) or tau <= 0 or settings.triplet < 0 or (settings.margin or 0) < 0:
        raise InputError("tau must be positive, or d, and neither triplet nor margin may be negative.")
    if settings.samples_per_class != 0:
        check_int("samples_per_class", settings.samples_per_class, 2)
    return tau


def _check_loss(settings: ProxySettings, proxies: ProxySet, *, tags: bool) -> None:
    loss = settings.loss
    if tags and loss != "softmax":
        raise InputError(f"Tagged images are learned by the balanced cross-entropy; the loss {loss} is for single labels.")
    if settings.bias and loss != "softmax":
        raise InputError(f"The bias of classes belongs to the loss softmax, not to {loss}.")
    if loss == "bits" and not proxies.binary:
        raise InputError(f"The loss bits needs proxies of +1 and -1, and those of the kind {proxies.kind} are not.")


for _kind in list_kinds():
    register_method(
        _kind,
        title=_kind if _kind in ("random", "learned") else _kind.replace("hclm", "HCLM"),
        family="proxy",
        year=2019,
        settings=_SETTINGS_BY_KIND.get(_kind, ProxySettings),
    )(type(f"{_kind.capitalize()}Proxies", (ProxyMethod,), {"kind": _kind}))
