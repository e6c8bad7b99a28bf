"""A shallow method as a model: its linear map on top of a backbone, so that it encodes images and fills an index."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proxyhash.data import Dataset, Split
from proxyhash.data.images import Indices
from proxyhash.data.protocols.split import drop_indices
from proxyhash.labels import Labels
from proxyhash.methods import LinearEncoder, TrainingData, get_method
from proxyhash.models.backbones import create_backbone, trained_on
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.network import HashNetwork
from proxyhash.training.features import fit_method
from proxyhash.training.train import resolve_transform
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
        return not get_method(name).trains
    except InputError:
        return False


def fit_hashers(
    dataset: Dataset, split: Split | None, order: ShallowOrder, *, progress: Progress = no_progress
) -> list[Hasher]:
    """Fit a shallow method on the training images, or on all if there is no split, and return a hasher for each length."""
    if split is None and get_method(order.method).learns_from != "nothing":
        raise InputError(f"{get_method(order.method).title} learns from labels, and {dataset.name} is used without.")
    pretrained = order.pretrained and trained_on(order.backbone) is not None
    backbone = create_backbone(order.backbone, pretrained=pretrained, seed=order.seed).eval()
    transform = resolve_transform(dataset, backbone, order.image_size, order.transform)
    features = cached_features(dataset, backbone, transform, progress=progress)
    unreadable = np.flatnonzero(~features.readable)
    split = None if split is None else drop_indices(split, unreadable)
    train = np.flatnonzero(features.readable) if split is None else split.train
    labels = None if split is None else _training_labels(dataset, train)
    hashers = []
    for bits in order.bits:
        data = TrainingData(bits, features.values[train], labels, seed=order.seed, progress=progress)
        encoder = fit_method(order.method, data, **order.settings)
        if not isinstance(encoder, LinearEncoder):
            raise InputError(f"{get_method(order.method).title} gives no linear map, and a model holds no other.")
        record = {"order": order.record(bits), "lengths": order.bits}
        record |= {} if split is None else {"protocol": split.record()}
        names = () if labels is None else labels.names
        network = HashNetwork(backbone, encoder.to_head()).eval().float()
        hashers.append(Hasher(network, transform, names, None, record))
    return hashers


def _training_labels(dataset: Dataset, train: Indices) -> Labels:
    """Return the labels of the training images, with the classes or tags that occur."""
    known = dataset.require_labels().subset(train)
    return known.select_classes(known.present_classes())
