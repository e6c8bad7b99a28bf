"""Training of hashers on a data set."""

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
from proxyhash.data.images import Indices, in_memory
from proxyhash.data.protocols.split import drop_indices
from proxyhash.data.transforms import Transform, default_transform, find_transform
from proxyhash.labels import ClassLabels
from proxyhash.methods import TrainingData, build_method, check_settings
from proxyhash.models.backbones import create_backbone, trained_on
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.feature_cache import Features, cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.network import HashNetwork, HeadShape, Normalized
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import OptimConfig
from proxyhash.training.inputs import FeatureSource, ImageSource, InputSource
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import Metrics, Trainer, TrainSubset
from proxyhash.training.validation import EvalSubset, compute_validation_metrics
from proxyhash.utils.distributed import init_distributed
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import downgrade_optim_config
from proxyhash.utils.memory import keep_freed_memory
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

MAX_VAL_IMAGES = 5_000  # Queries, and database images, of the validation of an epoch of fine-tuning.
SMALL_IMAGE_SIZE = 112  # Size for fine-tuning on small images: a quarter of the work of 224 pixels.


@dataclass(frozen=True)
class TrainConfig:
    """Configuration of a training run."""

    bits: tuple[int, ...]
    method: str = "shclm"
    settings: dict[str, Any] = field(default_factory=dict)  # Of the method.
    backbone: str = "efficientnet_lite0"
    pretrained: bool = True  # If the backbone has pretrained weights.
    image_size: int | None = None  # None: by the backbone and the images.
    transform: str | None = None
    optim: OptimConfig = field(default_factory=OptimConfig.frozen)
    seed: int = 0

    @property
    def finetune(self) -> bool:
        """Return whether the backbone is trained."""
        return self.optim.backbone_lr > 0

    def __post_init__(self) -> None:
        """Check method, settings, code lengths and seed."""
        check_settings(self.method, self.settings)
        check_int("seed", self.seed, 0)
        if not self.bits or min(self.bits) < 1 or len(set(self.bits)) != len(self.bits):
            raise InputError(f"Code lengths must be different whole numbers from 1 upwards, not {self.bits}.")


def train_hashers(
    dataset: Dataset,
    split: Split,
    config: TrainConfig,
    run_dir: Path,
    *,
    resume: bool = False,
    device: str = "cpu",
    progress: Progress = no_progress,
    report: Callable[[Metrics], None] = lambda _: None,
) -> list[Hasher]:
    """Train one network with a head for each code length, and return a hasher for each.

    Checkpoints and the log are in the folder `run_dir`. With a validation set the best epoch is used, else the last.
    """
    processes = init_distributed()
    backbone = create_backbone(
        config.backbone, pretrained=config.pretrained and trained_on(config.backbone) is not None, seed=config.seed
    )
    transform = resolve_transform(dataset, backbone, config.image_size, config.transform, finetune=config.finetune)
    backbone.eval().to(device)
    features = processes.main_process_first(lambda: cached_features(dataset, backbone, transform, progress=progress))
    split = drop_indices(split, np.flatnonzero(~features.readable))
    if not len(split.train):
        raise InputError(f"None of the images of {dataset.name} that are to be trained on can be read.")
    classes = train_classes(dataset, split.train)
    if len(classes) < 2:
        raise InputError(
            f"{dataset.name} has one class to learn from, and two are needed to tell apart; "
            "without labels: --method itq --protocol none."
        )
    model = _build_model(dataset, split.train, classes, config, backbone, features, progress)
    folder = CheckpointManager(run_dir, processes.is_main_process)
    settings = {"order": _as_mapping(config), "protocol": split.record()}
    processes.main_process_first(lambda: folder.start(settings, resume=resume))
    source: InputSource = FeatureSource(features.values)
    if config.finetune:
        source = ImageSource(dataset.images, transform, config.optim, config.seed)
        backbone.set_batch_norm_momentum(config.optim.bn_momentum)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        keep_freed_memory()
    limit = MAX_VAL_IMAGES if config.finetune else None
    trainer = Trainer(
        model,
        config.optim,
        source,
        TrainSubset(split.train, _build_targets(dataset, split.train, classes)),
        folder,
        _build_validator(dataset, split, classes, config.bits, source, limit) if len(split.validation) else None,
        processes,
        torch.device(device),
        progress,
        report,
        config.seed,
    )
    model = trainer.fit().cpu()
    names = tuple(dataset.class_names[number] for number in classes)
    hashers = [_build_hasher(number, model, backbone, transform, names, split, config) for number in range(len(config.bits))]
    for hasher in hashers:
        hasher.record["validation"] = folder.best_epoch_metrics(hasher.bits)
    return hashers


def _as_mapping(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration by the names that it has on disk."""
    content = asdict(config)
    return {**content, "plan": downgrade_optim_config(content.pop("optim"), content.pop("seed"))}


def resolve_transform(
    dataset: Dataset, backbone: Backbone, image_size: int | None = None, name: str | None = None, *, finetune: bool = False
) -> Transform:
    """Return the named transform, or the default for the images and the backbone."""
    if name is not None:
        found = find_transform(name, image_size)
        return replace(found, flip=found.flip and dataset.mirrors)
    return default_transform(dataset, image_size or _resolve_image_size(dataset, backbone, finetune))


def _resolve_image_size(dataset: Dataset, backbone: Backbone, finetunes: bool) -> int:
    size, pretrained = backbone.facts.image_size, backbone.facts.pretrained_on is not None
    stored = dataset.images.stored(np.zeros(1, np.int64)) if in_memory(dataset.images) else None
    if stored is None or (pretrained and not finetunes):
        return size
    return min(size, SMALL_IMAGE_SIZE) if pretrained else stored.shape[1]


def train_classes(dataset: Dataset, train: Indices) -> Indices:
    """Return the sorted classes, or tags, of the training images."""
    return dataset.require_labels().subset(train).present_classes()


def _build_model(
    dataset: Dataset,
    train: Indices,
    classes: Indices,
    config: TrainConfig,
    backbone: Backbone,
    features: Features,
    progress: Progress,
) -> MultiHeadModel:
    """Build methods and heads; the draws depend on the seed only."""
    labels = dataset.require_labels().subset(train).select_classes(classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        objectives, heads = [], []
        for bits in config.bits:
            data = TrainingData(
                bits,
                lambda: features.values[train],
                labels,
                seed=config.seed,
                progress=progress,
                finetune=config.finetune,
            )
            objectives.append(build_method(config.method, data, config.settings))
            shape = HeadShape(backbone.facts.width, bits, config.optim.hidden_dim, config.optim.dropout)
            heads.append(objectives[-1].build_head(shape))
    trunk = Normalized(backbone) if config.finetune else nn.Identity()
    return MultiHeadModel(trunk, heads, objectives, freeze_bn=config.optim.freeze_bn)


def _build_targets(dataset: Dataset, images: Indices, classes: Indices) -> NDArray[np.int64] | NDArray[np.float32]:
    """Return class numbers (n,) among `classes`, -1 for others, or tags (n, T)."""
    return dataset.require_labels().subset(images).select_classes(classes).targets()


def _build_validator(
    dataset: Dataset, split: Split, seen: Indices, lengths: tuple[int, ...], source: InputSource, limit: int | None
) -> Callable[[MultiHeadModel], Metrics]:
    def subset(images: Indices) -> EvalSubset:
        chosen = images[np.linspace(0, len(images) - 1, limit).astype(int)] if limit and len(images) > limit else images
        labels = dataset.require_labels().subset(chosen)
        classes = labels.select_classes(seen).values if isinstance(labels, ClassLabels) else None
        return EvalSubset(chosen, labels.values, classes)

    queries, database = subset(split.validation), subset(split.validation_database)
    return lambda model: compute_validation_metrics(model, source, queries, database, lengths, split.top)


def _build_hasher(
    number: int,
    model: MultiHeadModel,
    backbone: Backbone,
    transform: Transform,
    names: tuple[str, ...],
    split: Split,
    config: TrainConfig,
) -> Hasher:
    trained = model.trunk.backbone if isinstance(model.trunk, Normalized) else backbone
    network = HashNetwork(trained, model.heads[number]).eval().float()
    record = {
        "order": {**_as_mapping(config), "bits": config.bits[number]},
        "lengths": config.bits,
        "protocol": split.record(),
    }
    codes = model.objectives[number].training_codes()
    packed = None if codes is None else pack(codes.cpu().numpy() >= 0)
    return Hasher(network, transform, names, model.objectives[number].proxies(), record, training_codes=packed)
