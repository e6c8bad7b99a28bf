"""The front door of learning: a data set and a protocol in, a hasher for each code length out."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from proxyhash.codes import pack
from proxyhash.data import Dataset, Split
from proxyhash.data.images import Indices, is_in_memory
from proxyhash.data.transforms import Transform, default_transform, get_transform
from proxyhash.labels import ClassLabels
from proxyhash.methods import TrainingData, build_method, check_settings
from proxyhash.models.backbones import create_backbone, pretraining_data
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.feature_cache import CachedFeatures, cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.network import HashNetwork, HeadConfig, NormalizedBackbone
from proxyhash.training.embedding import Judged, validation_metrics
from proxyhash.training.learner import Learner
from proxyhash.training.plan import Plan
from proxyhash.training.processes import join_processes
from proxyhash.training.run_folder import RunFolder
from proxyhash.training.sources import FeatureSource, ImageSource, Source
from proxyhash.training.trainer import Material, Metrics, Trainer
from proxyhash.utils.errors import InputError
from proxyhash.utils.memory import keep_freed_memory
from proxyhash.utils.progress import Progress, no_progress

JUDGED_IMAGES = 5_000  # of queries and of the database that an epoch is judged by, when images must be embedded for it
SMALL = 112  # pixels at which small images are fine-tuned: 4 times less work than 224, and they hold no more detail


@dataclass(frozen=True)
class Order:
    """What a person asks for."""

    bits: tuple[int, ...]
    method: str = "shclm"
    settings: dict[str, Any] = field(default_factory=dict)  # of the method
    backbone: str = "efficientnet_lite0"
    pretrained: bool = True  # where the backbone has weights
    image_size: int | None = None  # None: what suits the backbone and the images
    transform: str | None = None
    plan: Plan = field(default_factory=Plan.frozen)

    @property
    def finetunes(self) -> bool:
        """Return whether the backbone is trained too."""
        return self.plan.backbone_rate > 0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before any work is done for it."""
        check_settings(self.method, self.settings)
        if not self.bits or min(self.bits) < 1 or len(set(self.bits)) != len(self.bits):
            raise InputError(f"Code lengths must be different whole numbers from 1 upwards, not {self.bits}.")


def train_hashers(
    dataset: Dataset,
    split: Split,
    order: Order,
    run: Path,
    *,
    resume: bool = False,
    device: str = "cpu",
    progress: Progress = no_progress,
    report: Callable[[Metrics], None] = lambda _: None,
) -> list[Hasher]:
    """Train one network with a head for each code length, and return a hasher for each.

    The run keeps its checkpoints and its log in the folder `run`. With a validation set the best epoch is used, without one
    the last.
    """
    processes = join_processes()
    backbone = create_backbone(
        order.backbone, pretrained=order.pretrained and pretraining_data(order.backbone) is not None, seed=order.plan.seed
    )
    transform = suitable_transform(dataset, backbone, order.image_size, order.transform, finetunes=order.finetunes)
    backbone.eval().to(device)
    features = processes.in_turn(lambda: cached_features(dataset, backbone, transform, progress=progress))
    split = without(split, np.flatnonzero(~features.readable))
    if not len(split.train):
        raise InputError(f"None of the images of {dataset.name} that are to be trained on can be read.")
    classes = seen_classes(dataset, split.train)
    if len(classes) < 2:
        raise InputError(
            f"{dataset.name} has one class to learn from, and two are needed to tell apart; "
            "without labels: --method itq --protocol none."
        )
    learner = _learner(dataset, split.train, classes, order, backbone, features, progress)
    folder = RunFolder(run, processes.first)
    settings = {"order": asdict(order), "protocol": split.as_dict()}
    processes.in_turn(lambda: folder.begin(settings, resume=resume))
    source: Source = FeatureSource(features.values)
    if order.finetunes:
        source = ImageSource(dataset.images, transform, order.plan)
        backbone.set_bn_momentum(order.plan.momentum)
        learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        keep_freed_memory()
    limit = JUDGED_IMAGES if order.finetunes else None
    trainer = Trainer(
        learner,
        order.plan,
        source,
        Material(split.train, _targets(dataset, split.train, classes)),
        folder,
        _validator(dataset, split, classes, order.bits, source, limit) if len(split.validation) else None,
        processes,
        torch.device(device),
        progress,
        report,
    )
    trained = trainer.fit().cpu()
    names = tuple(dataset.class_names[number] for number in classes)
    hashers = [_hasher(number, trained, backbone, transform, names, split, order) for number in range(len(order.bits))]
    for hasher in hashers:
        hasher.metadata["validation"] = folder.best_epoch(hasher.bits)
    return hashers


def without(split: Split, unusable: Indices) -> Split:
    """Return a split without some images."""
    if not len(unusable):
        return split
    return replace(
        split,
        train=np.setdiff1d(split.train, unusable),
        validation=np.setdiff1d(split.validation, unusable),
        validation_database=np.setdiff1d(split.validation_database, unusable),
        query=np.setdiff1d(split.query, unusable),
        database=np.setdiff1d(split.database, unusable),
    )


def suitable_transform(
    dataset: Dataset, backbone: Backbone, size: int | None = None, name: str | None = None, *, finetunes: bool = False
) -> Transform:
    """Return how images are prepared: as a person says, or else as suits the images and the backbone."""
    if name is not None:
        found = get_transform(name, size)
        return replace(found, flip=found.flip and dataset.flip_safe)
    return default_transform(dataset, size or _suitable_size(dataset, backbone, finetunes))


def _suitable_size(dataset: Dataset, backbone: Backbone, finetunes: bool) -> int:
    size, pretrained = backbone.config.image_size, backbone.config.pretrained_on is not None
    stored = dataset.images.pixels_in_memory(np.zeros(1, np.int64)) if is_in_memory(dataset.images) else None
    if stored is None or (pretrained and not finetunes):
        return size
    return min(size, SMALL) if pretrained else stored.shape[1]


def seen_classes(dataset: Dataset, train: Indices) -> Indices:
    """Return the classes, or tags, that training sees: not those of which all images are held out or cannot be read."""
    return dataset.require_labels().subset(train).present_classes()


def _learner(
    dataset: Dataset,
    train: Indices,
    classes: Indices,
    order: Order,
    backbone: Backbone,
    features: CachedFeatures,
    progress: Progress,
) -> Learner:
    """Build heads and objectives, the same ones for the same seed."""
    labels = dataset.require_labels().subset(train).select_classes(classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(order.plan.seed)
        objectives, heads = [], []
        for bits in order.bits:
            data = TrainingData(
                bits,
                lambda: features.values[train],
                labels,
                seed=order.plan.seed,
                progress=progress,
                finetune=order.finetunes,
            )
            objectives.append(build_method(order.method, data, order.settings))
            shape = HeadConfig(backbone.config.num_features, bits, order.plan.hidden, order.plan.dropout)
            heads.append(objectives[-1].build_head(shape))
    trunk = NormalizedBackbone(backbone) if order.finetunes else nn.Identity()
    return Learner(trunk, heads, objectives, freeze_statistics=order.plan.freeze_statistics)


def _targets(dataset: Dataset, images: Indices, classes: Indices) -> NDArray[np.int64] | NDArray[np.float32]:
    """Return classes as training numbers them (n,), -1 for one that it does not see; or its tags (n, T)."""
    return dataset.require_labels().subset(images).select_classes(classes).targets()


def _validator(
    dataset: Dataset, split: Split, seen: Indices, lengths: tuple[int, ...], source: Source, limit: int | None
) -> Callable[[Learner], Metrics]:
    def judged(images: Indices) -> Judged:
        chosen = images[np.linspace(0, len(images) - 1, limit).astype(int)] if limit and len(images) > limit else images
        labels = dataset.require_labels().subset(chosen)
        classes = labels.select_classes(seen).values if isinstance(labels, ClassLabels) else None
        return Judged(chosen, labels.values, classes)

    queries, database = judged(split.validation), judged(split.validation_database)
    return lambda learner: validation_metrics(learner, source, queries, database, lengths, split.top)


def _hasher(
    number: int,
    learner: Learner,
    backbone: Backbone,
    transform: Transform,
    names: tuple[str, ...],
    split: Split,
    order: Order,
) -> Hasher:
    trained = learner.trunk.backbone if isinstance(learner.trunk, NormalizedBackbone) else backbone
    network = HashNetwork(trained, learner.coders[number]).eval().float()
    record = {"order": {**asdict(order), "bits": order.bits[number]}, "lengths": order.bits, "protocol": split.as_dict()}
    codes = learner.methods[number].training_codes()
    packed = None if codes is None else pack(codes.cpu().numpy() >= 0)
    return Hasher(network, transform, names, learner.methods[number].proxies(), record, training_codes=packed)
