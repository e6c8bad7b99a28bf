"""A shallow method as a model: its linear map on top of a backbone, so that it encodes images and fills an index."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from proxyhash.data import Dataset, Split
from proxyhash.data.images import Indices
from proxyhash.methods.lesson import Lesson
from proxyhash.methods.registry import find_method, fit_method
from proxyhash.methods.shallow.feature_hasher import FeatureHasher
from proxyhash.models.backbones import create_backbone, pretraining_data
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.network import HashHead, HashNetwork, HeadConfig
from proxyhash.training.train import class_and_tag_arrays, seen_classes, suitable_transform, without
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


@dataclass(frozen=True)
class ShallowOrder:
    """What a person asks for: one fit for each length, on frozen features."""

    bits: tuple[int, ...]
    method: str = "itq"
    settings: dict[str, Any] = field(default_factory=dict)
    backbone: str = "efficientnet_lite0"
    pretrained: bool = True
    image_size: int | None = None
    transform: str | None = None
    seed: int = 0

    def record(self, bits: int) -> dict[str, Any]:
        """Return what a model says of how it came to be; a backbone's rate of 0 says that its features were frozen."""
        return {**vars(self), "bits": bits, "plan": {"backbone_rate": 0.0, "seed": self.seed}}


def is_shallow(name: str) -> bool:
    """Return whether a method is known, and fits features instead of training a network."""
    try:
        return not find_method(name).trains
    except InputError:
        return False


def fit_hashers(
    dataset: Dataset, split: Split | None, order: ShallowOrder, *, progress: Progress = no_progress
) -> list[Hasher]:
    """Fit a shallow method on the training images, or on all if there is no split, and return a hasher for each length."""
    if split is None and find_method(order.method).learns_from != "nothing":
        raise InputError(f"{find_method(order.method).title} learns from labels, and {dataset.name} is used without.")
    pretrained = order.pretrained and pretraining_data(order.backbone) is not None
    backbone = create_backbone(order.backbone, pretrained=pretrained, seed=order.seed).eval()
    transform = suitable_transform(dataset, backbone, order.image_size, order.transform)
    features = cached_features(dataset, backbone, transform, progress=progress)
    unreadable = np.flatnonzero(~features.readable)
    split = None if split is None else without(split, unreadable)
    train = np.flatnonzero(features.readable) if split is None else split.train
    hashers = []
    for bits in order.bits:
        lesson = _lesson(dataset, train, split is not None, bits, features.values[train], order.seed, progress)
        head = as_head(fit_method(order.method, lesson, **order.settings))
        record = {"order": order.record(bits), "lengths": order.bits}
        record |= {} if split is None else {"protocol": split.as_dict()}
        names = () if split is None else _names(dataset, train)
        hashers.append(Hasher(_network(backbone, head), transform, names, None, record))
    return hashers


def as_head(encoder: object) -> HashHead:
    """Return nu = tanh(P'q - P'm), whose signs are the encoder's codes; a kernel of features is no such map."""
    if not isinstance(encoder, FeatureHasher) or encoder.anchors is not None:
        title = find_method(getattr(encoder, "method", "")).title
        raise InputError(f"{title} compares features with a kernel, which a model cannot hold; compare it by benchmark.")
    head = HashHead(HeadConfig(len(encoder.mean), encoder.bits))
    weight = torch.from_numpy(np.ascontiguousarray(encoder.projection.T))
    bias = torch.from_numpy(-(encoder.mean.astype(np.float64) @ encoder.projection).astype(np.float32))
    head.load_state_dict({"layers.0.weight": weight, "layers.0.bias": bias})
    return head.eval()


def _network(backbone: Backbone, head: HashHead) -> HashNetwork:
    return HashNetwork(backbone, head).eval().float()


def _names(dataset: Dataset, train: Indices) -> tuple[str, ...]:
    return tuple(dataset.class_names[number] for number in seen_classes(dataset, train))


def _lesson(
    dataset: Dataset,
    train: Indices,
    labeled: bool,
    bits: int,
    features: "np.typing.NDArray[np.float32]",
    seed: int,
    progress: Progress,
) -> Lesson:
    if not labeled:
        return Lesson(bits, features, seed=seed, progress=progress)
    known = dataset.require_labels().subset(train)
    arrays = class_and_tag_arrays(known.select_classes(known.present_classes()))
    return Lesson(bits, features, *arrays, seed, progress)
