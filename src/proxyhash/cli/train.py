"""`proxyhash train`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from proxyhash.cli.output import print_result, show_log, status_console
from proxyhash.cli.parameters import Device, Flag, Int, Json, split_ints
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError


def train(
    data: str | None = None,
    /,
    *,
    config: Path | None = None,
    bits: str | None = None,
    goal: Annotated[Literal["known-classes", "new-classes"] | None, Parameter(name="--for")] = None,
    method: str | None = None,
    triplet: float | None = None,
    tau: float | None = None,
    margin: float | None = None,
    backbone: str | None = None,
    pretrained: bool | None = None,
    finetune: str | None = None,
    image_size: Int | None = None,
    transform: str | None = None,
    protocol: str | None = None,
    fold: Int | None = None,
    validation: Literal["images", "classes", "none"] | None = None,
    tags: Int | None = None,
    epochs: Int | None = None,
    batch_size: Int | None = None,
    lr: float | None = None,
    backbone_lr: float | None = None,
    hidden_dim: Int | None = None,
    dropout: float | None = None,
    progressive_resize: float | None = None,
    ema_decay: float | None = None,
    freeze_bn: bool | None = None,
    cached_crops: Int | None = None,
    pretrained_share: float | None = None,
    seed: Int | None = None,
    data_dir: Path | None = None,
    device: Device | None = None,
    precision: Literal["float32", "bfloat16", "float16"] | None = None,
    tensorboard: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    strict: Annotated[bool, Flag] = False,
    json_: Json = False,
    output: Annotated[Path, Parameter(alias="-o")],
) -> None:
    """Train a hasher on labeled or tagged images.

    On frozen features (minutes), with the last stages of the network (half an hour), and end to end (hours):

      proxyhash train photos/ --bits 32 -o model
      proxyhash train cifar100 --bits 16,32,64 --finetune last -o models
      proxyhash train cifar100 --bits 16,32,64 --finetune all -o models

    For images whose classes will not be those of the training images:

      proxyhash train photos/ --for new-classes -o model

    Without labels, by the principal directions of pretrained features:

      proxyhash train photos/ --method itq --bits 64 -o model

    By a configuration file:

      proxyhash train --config train.toml -o model

    With several code lengths one network is trained with a head for each, and models/16, models/32 and models/64 are
    written. Checkpoints and the log are in a folder beside the output, named with .run; --resume continues from there.

    Parameters
    ----------
    data
        A name from `proxyhash datasets`, or a folder.
    config
        A TOML file with the names of these options as keys, and tables [settings] (of the method) and [optim] (epochs, lr,
        ...). Options on the command line override it.
    bits
        Code length, or several with commas; by default 32.
    goal
        Method and optimizer settings for images of known classes, those of the training images, or of new ones. Other
        options override them. In a configuration file, the key is goal.
    method
        shclm (the default, the paper's), another kind of proxies, triplet, or another method (`proxyhash methods`), with
        settings as in shclm:tau=4. itq, itq-cca and lsh fit frozen features; itq and lsh need no labels.
    triplet
        Weight of the triplet loss in the joint loss (lambda); the paper's best is 1 to 10.
    tau
        Scale of the logits, (tau / bits) w.nu; by default 6 for classes and 0.5 for tags.
    margin
        Margin of the triplet loss, in bits, or below 1 as a fraction of the code length; by default 1/16.
    backbone
        The network: efficientnet_lite0 (the default), _lite1, _lite2, alexnet, convnet, or timm/NAME.
    pretrained
        Start from pretrained weights (the default), or from random ones.
    finetune
        Train the backbone too, instead of a head on its frozen features: all of it, its last stages, or a number of upper
        stages. Activations of the stages below are kept on disk (proxyhash cache).
    image_size
        Side of the images in pixels; by default chosen by backbone and images.
    transform
        Preparation and augmentation of images: small, photo, paper-cifar or paper-256.
    protocol
        How the data are split; by default as the data set suggests (`proxyhash data protocols`). none, for a method that
        needs no labels, learns from all images.
    fold
        Fold of a transfer protocol, 0 to 3.
    validation
        What is held out of the training set to choose the best epoch: images, classes, or none.
    tags
        Keep this number of the most frequent tags.
    epochs
        Passes over the training images; by default 12, or 6 with --finetune last.
    batch_size
        Images per step; by default 256, or 128 with --finetune.
    lr
        Learning rate of the head; by default 0.005, or 0.004 with --finetune.
    backbone_lr
        Learning rate of the backbone, with --finetune; by default 0.001.
    hidden_dim
        Units of the hidden layer of the head, 0 for none; by default 2048, or 0 with --finetune.
    dropout
        Dropout before the last layer; by default 0.
    progressive_resize
        Image side in the first epoch of --finetune all as a fraction of the full side; by default 0.5.
    ema_decay
        Decay of an exponential moving average of the weights, e.g. 0.999; by default there is none.
    freeze_bn
        Keep the running statistics of the backbone's batch normalization, for small batches.
    cached_crops
        Versions of each image, with --finetune last: 1 (the default), or more for random crops beside it.
    pretrained_share
        Share of the initial weights in the final ones of a fine-tuned backbone (WiSE-FT); by default 0.
    seed
        Seed of every random draw; by default 0.
    data_dir
        Folder to look for a named data set first.
    device
        auto (the default: a GPU if there is one), cpu, cuda, cuda:1 or mps.
    precision
        Precision of the forward pass; by default bfloat16 or float16 on a CUDA GPU, and float32 elsewhere.
    tensorboard
        Folder for the metrics of each epoch, for TensorBoard.
    resume
        Continue from the last checkpoint of the same command.
    strict
        Stop at the first image that cannot be used.
    json_
        Print JSON: the models with their configuration and validation metrics.
    output
        Folder of the model.
    """
    from proxyhash.training.config import TrainConfig
    from proxyhash.training.run import train_models
    from proxyhash.utils.config import read_toml
    from proxyhash.utils.distributed import init_distributed

    options: dict[str, Any] = {
        "data": data,
        "bits": split_ints("bits", bits),
        "goal": goal,
        "method": method,
        "backbone": backbone,
        "pretrained": pretrained,
    }
    options |= {"finetune": finetune, "image_size": image_size, "transform": transform, "protocol": protocol, "fold": fold}
    options |= {"validation": validation, "tags": tags, "seed": seed, "device": device, "precision": precision}
    settings = {"triplet": triplet, "tau": tau, "margin": margin}
    optim: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "backbone_lr": backbone_lr,
        "hidden_dim": hidden_dim,
    }
    optim |= {"dropout": dropout, "progressive_resize": progressive_resize, "ema_decay": ema_decay, "freeze_bn": freeze_bn}
    optim |= {"cached_crops": cached_crops, "pretrained_share": pretrained_share}
    file = {} if config is None else read_toml(config)
    train_config = TrainConfig.from_mapping(_override(file, {**options, "settings": settings, "optim": optim}))
    distributed = init_distributed()
    report = _epoch_reporter(train_config.optim.epochs, tensorboard, enabled=distributed.is_main_process, printed=not json_)
    with show_log("proxyhash.models"), progress_bars(enabled=distributed.is_main_process) as progress:
        trained = train_models(
            train_config,
            output,
            resume=resume,
            strict=strict,
            data_dir=data_dir,
            distributed=distributed,
            progress=progress,
            report=report,
        )
    if not distributed.is_main_process:
        return
    hint = "" if trained.split is None else f"; measure it with: proxyhash evaluate model {trained.folders[0]}"
    print_result(
        trained.as_dict(),
        *(f"Left out: {sentence}" for sentence in trained.dataset.skipped.sentences()),
        f"Saved {', '.join(map(str, trained.folders))}{hint}",
        as_json=json_,
    )


def _override(file: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a configuration file with the options that were given over it, table by table."""
    merged = dict(file)
    for name, value in options.items():
        if isinstance(value, Mapping):
            table = file.get(name, {})
            if not isinstance(table, Mapping):
                raise InputError(f"{name} must be a table, not {table!r}.")
            merged[name] = _override(table, value)
        elif value is not None:
            merged[name] = value
    return merged


def _epoch_reporter(
    epochs: int, tensorboard: Path | None, *, enabled: bool, printed: bool
) -> Callable[[dict[str, float]], None]:
    """Return a function that prints the metrics of an epoch and writes them for TensorBoard."""
    from proxyhash.training.tensorboard import tensorboard_writer

    console = status_console(enabled=enabled and printed)
    write = tensorboard_writer(tensorboard) if enabled and tensorboard is not None else None

    def report(metrics: dict[str, float]) -> None:
        console.print(_format_epoch(metrics, epochs))
        if write is not None:
            write(metrics)

    return report


def _format_epoch(metrics: Mapping[str, float], epochs: int) -> str:
    titles = {"map": "validation mAP", "accuracy": "accuracy", "binarization_error": "binarization error"}
    parts = [f"epoch {metrics['epoch']:.0f}/{epochs}", f"loss {metrics['loss']:.3f}"]
    for name, value in metrics.items():
        metric, _, bits = name.rpartition("_")
        if metric in titles:
            parts.append(f"{titles[metric]}@{bits} {value:.3f}")
    return ", ".join([*parts, f"{metrics['images_per_second']:,.0f} images/s"])
