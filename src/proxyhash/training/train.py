"""Training of hashers on a data set."""

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from proxyhash.codes import pack
from proxyhash.data import Dataset, Split
from proxyhash.data.images import Indices
from proxyhash.data.protocols.split import drop_indices
from proxyhash.data.transforms import Transform, get_transform
from proxyhash.labels import ClassLabels, Labels
from proxyhash.methods import HeadEncoder, LinearEncoder, TrainingData, build_method, get_method
from proxyhash.models.activation_cache import CachedActivations, cached_activations
from proxyhash.models.backbones import create_backbone, pretraining_data
from proxyhash.models.backbones.base import Backbone
from proxyhash.models.backbones.stages import split_stages
from proxyhash.models.backbones.wrapped import WrappedBackbone, class_name, copy_backbone, weights_checksum
from proxyhash.models.device import find_device
from proxyhash.models.feature_cache import cached_features
from proxyhash.models.hasher import Hasher
from proxyhash.models.heads import Head
from proxyhash.models.network import HashNetwork, HeadConfig, NormalizedBackbone
from proxyhash.training.activations import ActivationSource
from proxyhash.training.checkpoint import CheckpointManager
from proxyhash.training.config import TrainConfig, is_partial, resolve_stages
from proxyhash.training.features import fit_method
from proxyhash.training.inputs import FeatureSource, ImageSource, InputSource, resolve_transform
from proxyhash.training.model import MultiHeadModel
from proxyhash.training.trainer import Metrics, Trainer, TrainSubset
from proxyhash.training.validation import EvalSubset, compute_validation_metrics
from proxyhash.utils.distributed import DistributedContext, init_distributed
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.memory import keep_freed_memory
from proxyhash.utils.progress import Progress, no_progress

MAX_VAL_IMAGES = 5_000  # Queries, and database images, of the validation of an epoch of fine-tuning.


def train_hashers(
    dataset: Dataset,
    split: Split | None,
    config: TrainConfig,
    run_dir: Path | None = None,
    *,
    resume: bool = False,
    backbone_module: Backbone | None = None,
    distributed: DistributedContext | None = None,
    progress: Progress = no_progress,
    report: Callable[[Metrics], None] = lambda _: None,
) -> list[Hasher]:
    """Train or fit a hasher for each code length.

    A method that trains gets one network with a head for each length. With a validation set the weights of the best epoch
    are used, without one those of the last. Other methods are fitted on frozen features, once for each length.

    Parameters
    ----------
    dataset
        Images and labels.
    split
        Training and validation images. None, for a method that needs no labels, learns from all images.
    config
        Configuration. Its `data`, `tags` and `fold` only describe the data set in the model; `protocol` and `validation` are
        those of `split`.
    run_dir
        Folder for settings, log and checkpoints; None for a temporary one, from which nothing can be resumed.
    resume
        Continue from the last checkpoint in `run_dir`.
    backbone_module
        A network of your own, as `wrap_backbone` returns it, in place of `config.backbone`. A copy of it is trained.
    distributed
        Processes that share the training; None for those that torchrun started.
    progress
        Called with the name of the work and the fraction that is done.
    report
        Called with the metrics of every epoch.

    Returns
    -------
    list of Hasher
        In the order of `config.bits`.

    Raises
    ------
    InputError
        If the method cannot learn from the data, or the run cannot be resumed with this configuration.
    TrainingStoppedError
        If training cannot continue, such as for a loss that is not finite.

    Examples
    --------
    >>> from proxyhash.data import load_dataset, make_split
    >>> digits = load_dataset("digits")
    >>> config = TrainConfig(bits=(8, 16), method="itq", backbone="convnet")
    >>> [hasher.bits for hasher in train_hashers(digits, make_split(digits), config)]
    [8, 16]
    """
    info = get_method(config.method)
    if split is None and info.learns_from != "nothing":
        raise InputError(f"{info.title} learns from labels, and {dataset.name} is used without.")
    backbone, config = _build_backbone(config, backbone_module)
    job = _prepare(dataset, split, config, backbone, distributed or init_distributed(), progress)
    if not info.trains:
        return _fit_hashers(job)
    with _run_folder(run_dir) as folder:
        return _train_network(job, CheckpointManager(folder, job.distributed.is_main_process), resume, report)


@dataclass(frozen=True)
class _Job:
    """Everything that fitting and training need, with unreadable images left out."""

    dataset: Dataset
    split: Split | None
    config: TrainConfig
    backbone: Backbone
    transform: Transform
    features: np.ndarray[Any, np.dtype[np.float32]]  # Of all images (N, width).
    activations: CachedActivations | None  # Of all images, for partial fine-tuning.
    train: Indices
    labels: Labels | None  # Of the training images, with the classes or tags that occur.
    device: torch.device
    distributed: DistributedContext
    progress: Progress

    def training_data(self, bits: int) -> TrainingData:
        config, progress = self.config, self.progress
        options: dict[str, Any] = {"seed": config.seed, "progress": progress, "finetune": config.finetune is not False}
        return TrainingData(bits, lambda: self.features[self.train], self.labels, **options)

    def hasher(self, bits: int, backbone: Backbone, head: Head, **options: Any) -> Hasher:
        config, split = self.config, self.split
        metadata: dict[str, Any] = {"config": {**config.weight_settings(), "bits": bits}, "code_lengths": config.bits}
        if split is not None:
            metadata["protocol"] = split.as_dict()
        if config.data is not None:
            metadata["data"] = {"path": config.data, "tags": config.tags, "fold": config.fold}
        names = () if self.labels is None else self.labels.names
        return Hasher(HashNetwork(backbone, head).cpu().eval().float(), self.transform, names, metadata=metadata, **options)


def _build_backbone(config: TrainConfig, module: Backbone | None) -> tuple[Backbone, TrainConfig]:
    """Return the backbone, and the configuration as it is recorded: with the name of the backbone and the sizes it takes."""
    if module is None:
        pretrained = config.pretrained and pretraining_data(config.backbone) is not None
        backbone = create_backbone(config.backbone, pretrained=pretrained, seed=config.seed)
        return backbone, replace(config, finetune=resolve_stages(config.finetune, backbone))
    if not isinstance(module, WrappedBackbone):
        raise InputError("backbone_module takes what wrap_backbone(module, image_size=...) returns.")
    backbone, size = copy_backbone(module), config.image_size or module.config.image_size
    config = replace(config, backbone=module.config.name, finetune=resolve_stages(config.finetune, backbone))
    if not module.accepts(size):
        raise InputError(f"{class_name(module.config)} takes no images of {size} pixels.")
    smallest = get_transform("small", size).resized(config.optim.resize_factor(0)).size
    if config.finetune is True and not module.accepts(smallest):
        text = (
            f"takes no images of {smallest} pixels, so progressive_resize is 1 instead of {config.optim.progressive_resize}"
        )
        warnings.warn(f"{class_name(module.config)} {text}.", ProxyhashWarning, 3)
        config = replace(config, optim=replace(config.optim, progressive_resize=1.0))
    return backbone, config


def _prepare(
    dataset: Dataset,
    split: Split | None,
    config: TrainConfig,
    backbone: Backbone,
    distributed: DistributedContext,
    progress: Progress,
) -> _Job:
    device = _find_device(config, distributed)
    whole = config.finetune is True  # trained at a smaller size, which the lower stages have to adapt to
    transform = resolve_transform(dataset, backbone, config.image_size, config.transform, finetune=whole)
    backbone.eval().to(device)
    features = distributed.main_process_first(lambda: cached_features(dataset, backbone, transform, progress=progress))
    readable, activations = features.readable, None
    if is_partial(config.finetune):
        upper, crops = int(config.finetune), config.optim.cached_crops  # "last" is resolved
        activations = distributed.main_process_first(
            lambda: cached_activations(dataset, backbone, transform, upper, crops=crops, progress=progress)
        )
        readable = readable & activations.readable
    split = None if split is None else drop_indices(split, np.flatnonzero(~readable))
    train = np.flatnonzero(readable) if split is None else split.train
    if not len(train):
        raise InputError(f"None of the images of {dataset.name} that are to be trained on can be read.")
    labels = None if split is None else _train_labels(dataset, train)
    cached = features.values, activations
    return _Job(dataset, split, config, backbone, transform, *cached, train, labels, device, distributed, progress)


def _find_device(config: TrainConfig, distributed: DistributedContext) -> torch.device:
    if distributed.world_size > 1 and ":" in (config.device or ""):
        raise InputError(
            f"Each process of torchrun trains on a GPU of its own, not all on {config.device}: use --device cuda."
        )
    return torch.device(find_device(config.device))


def _train_labels(dataset: Dataset, train: Indices) -> Labels:
    """Return the labels of the training images, with the classes or tags that occur."""
    labels = dataset.require_labels().subset(train)
    return labels.select_classes(labels.present_classes())


@contextmanager
def _run_folder(path: Path | None) -> Iterator[Path]:
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="proxyhash-") as folder:
        yield Path(folder)


def _fit_hashers(job: _Job) -> list[Hasher]:
    """Fit a method that trains no network on frozen features, once for each code length."""
    features, hashers = job.features[job.train], []
    for bits in job.config.bits:
        data = replace(job.training_data(bits), features=features)
        encoder = fit_method(job.config.method, data, **job.config.settings)
        if not isinstance(encoder, (LinearEncoder, HeadEncoder)):
            title = get_method(job.config.method).title
            raise InputError(f"{title} gives neither a linear map nor a head, and a model holds nothing else.")
        hashers.append(job.hasher(bits, job.backbone, encoder.to_head()))
    return hashers


def _train_network(
    job: _Job, checkpoints: CheckpointManager, resume: bool, report: Callable[[Metrics], None]
) -> list[Hasher]:
    """Train one network with a head for each code length."""
    config, split, labels = job.config, job.split, job.labels
    assert split is not None  # A method that trains learns from labels.
    assert labels is not None
    if labels.num_classes < 2:
        raise InputError(
            f"{job.dataset.name} has one class to learn from, and two are needed to tell apart; "
            "without labels: --method itq --protocol none."
        )
    model = _build_model(job)
    settings: dict[str, Any] = {"config": config.weight_settings(), "protocol": split.as_dict()}
    if isinstance(job.backbone, WrappedBackbone):  # its name does not say what it starts from
        settings["backbone_weights"] = weights_checksum(job.backbone)
    job.distributed.main_process_first(lambda: checkpoints.start(settings, resume=resume))
    source = _build_source(job)
    if config.finetune is not False:
        job.backbone.set_bn_momentum(config.optim.bn_momentum)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        keep_freed_memory()
    trainer = Trainer(
        model,
        config.optim,
        source,
        TrainSubset(split.train, labels.targets()),
        checkpoints,
        _build_validator(job, split, source) if len(split.validation) else None,
        job.distributed,
        job.device,
        job.progress,
        report,
        config.seed,
        config.precision,
    )
    model = trainer.fit().cpu()
    trained = _trained_backbone(job, model)
    hashers = []
    for bits, method, head in zip(config.bits, model.objectives, model.heads, strict=True):
        codes = method.training_codes()
        packed = None if codes is None else pack(codes.cpu().numpy() >= 0)
        hasher = job.hasher(bits, trained, head, proxies=method.proxies(), training_codes=packed)
        if trainer.used_precision != "float32":
            hasher.metadata["precision"] = trainer.used_precision
        hasher.metadata["validation"] = checkpoints.best_epoch_metrics(bits)
        hashers.append(hasher)
    return hashers


def _build_model(job: _Job) -> MultiHeadModel:
    """Build methods and heads; the draws depend on the seed only."""
    config = job.config
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        methods, heads = [], []
        for bits in config.bits:
            methods.append(build_method(config.method, job.training_data(bits), config.settings))
            shape = HeadConfig(job.backbone.config.num_features, bits, config.optim.hidden_dim, config.optim.dropout)
            heads.append(methods[-1].build_head(shape))
    return MultiHeadModel(_build_trunk(job), heads, methods, freeze_bn=config.optim.freeze_bn)


def _build_trunk(job: _Job) -> nn.Module:
    """Return what is trained of the backbone: nothing, all of it or its upper stages."""
    finetune = job.config.finetune
    if is_partial(finetune):
        return split_stages(job.backbone, int(finetune))[1]  # "last" is resolved
    return NormalizedBackbone(job.backbone) if finetune else nn.Identity()


def _build_source(job: _Job) -> InputSource:
    """Return the inputs of the trunk."""
    config = job.config
    if job.activations is not None:
        return ActivationSource(job.activations.crops, job.transform.flip, config.seed)
    if config.finetune:
        return ImageSource(job.dataset.images, job.transform, config.optim, config.seed)
    return FeatureSource(job.features)


def _trained_backbone(job: _Job, model: MultiHeadModel) -> Backbone:
    """Return the backbone with the weights of the trained trunk, which may be a moving average."""
    if isinstance(model.trunk, NormalizedBackbone):
        return model.trunk.backbone
    if job.activations is not None:
        _build_trunk(job).cpu().load_state_dict(model.trunk.state_dict())
    return job.backbone


def _build_validator(job: _Job, split: Split, source: InputSource) -> Callable[[MultiHeadModel], Metrics]:
    """Return a function that validates a model; fine-tuning embeds at most `MAX_VAL_IMAGES` queries and database images."""
    labels = job.dataset.require_labels()
    classes = labels.subset(split.train).present_classes()

    def subset(indices: Indices) -> EvalSubset:
        if job.config.finetune is not False and len(indices) > MAX_VAL_IMAGES:
            indices = indices[np.linspace(0, len(indices) - 1, MAX_VAL_IMAGES).astype(int)]
        chosen = labels.subset(indices)
        numbers = chosen.select_classes(classes).values if isinstance(chosen, ClassLabels) else None
        return EvalSubset(indices, chosen.values, numbers)

    queries, database = subset(split.validation), subset(split.validation_database)
    bits, cutoff = job.config.bits, (split.top, split.denominator)
    return lambda model: compute_validation_metrics(model, source, queries, database, bits, *cutoff)
