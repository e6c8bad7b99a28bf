"""`proxyhash train` and `proxyhash export`: from labeled images to a model, and the model for others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from proxyhash.cli.output import print_result, status_console
from proxyhash.cli.parameters import Flag, Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxyhash.data import Dataset, Split
    from proxyhash.models.hasher import Hasher
    from proxyhash.utils.progress import Progress


def train(
    data: str,
    /,
    *,
    bits: str = "32",
    method: str = "shclm",
    triplet: float | None = None,
    tau: float | None = None,
    margin: float | None = None,
    backbone: str = "efficientnet_lite0",
    no_pretrained: Annotated[bool, Flag] = False,
    finetune: Annotated[bool, Flag] = False,
    image_size: Int | None = None,
    transform: str | None = None,
    protocol: str | None = None,
    round_: Annotated[Int, Parameter(name="--round")] = 0,
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
    seed: Int = 0,
    data_dir: Path | None = None,
    device: str | None = None,
    freeze_bn: Annotated[bool, Flag] = False,
    tensorboard: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    strict: Annotated[bool, Flag] = False,
    json_: Json = False,
    output: Annotated[Path, Parameter(alias="-o")],
) -> None:
    """Train a hasher: from labeled or tagged images to a model that turns images into codes.

    On frozen features (minutes), and end to end:

      proxyhash train photos/ --bits 32 -o model
      proxyhash train cifar100 --bits 16,32,64 --finetune -o models

    Without labels, by the principal directions of pretrained features:

      proxyhash train photos/ --method itq --bits 64 -o model

    With several lengths one network is trained with a head for each, and models/16, models/32 and models/64 are written.
    Checkpoints and the log lie in a folder beside the output, named with .run; --resume goes on from there.

    Parameters
    ----------
    data
        A name from `proxyhash datasets`, or a folder.
    bits
        The length of the codes, or several with commas.
    method
        shclm (the paper's), another kind of proxies, triplet, or another method (`proxyhash methods`), with settings of its
        own as in joint:distance_share=0.5. itq, itq-cca and lsh fit frozen features; itq and lsh need no labels.
    triplet
        The weight of the triplet loss in the joint loss (lambda); the paper's best is 1 to 10.
    tau
        The scale of the logits, (tau / bits) w.nu; by default 6 for classes and 0.5 for tags.
    margin
        Of the triplet loss, in bits, or below 1 as a share of the code; by default a sixteenth of it.
    backbone
        The network: efficientnet_lite0, _lite1, _lite2, alexnet, convnet, or timm/NAME.
    no_pretrained
        Start from random weights.
    finetune
        Train the backbone too, instead of a head on its frozen features.
    image_size
        Pixels that the network sees; by default what suits it.
    transform
        How images are prepared and augmented: small, photo, paper-cifar or paper-256.
    protocol
        How the data are cut; by default as the data set would expect (`proxyhash data protocols`). none, for a method that
        needs no labels: all images are learned from, and nothing is measured.
    round_
        The round of a transfer protocol, 0 to 3.
    validation
        What is held out of the training set to pick the best epoch: images, classes, or none.
    tags
        Keep only so many of the most frequent tags.
    epochs
        Passes over the training images.
    batch_size
        Images per step.
    lr
        Learning rate of the head.
    backbone_lr
        Learning rate of the backbone, with --finetune.
    hidden_dim
        Units of the hidden layer of the head; 0 for none.
    dropout
        The share of the hidden layer that is left out in each step.
    ema_decay
        Decay of an exponential moving average of the weights, e.g. 0.999.
    progressive_resize
        Image side in the first epoch of --finetune as a fraction of the full side.
    seed
        The same seed gives the same model.
    data_dir
        Where to look for a named data set first.
    device
        cpu or cuda; by default what there is.
    freeze_bn
        Keep the running statistics of the backbone's batch normalization, for small batches.
    tensorboard
        A folder to write the metrics of each epoch to, for TensorBoard.
    resume
        Go on from the last checkpoint of the same command.
    strict
        Stop at the first image that cannot be used.
    json_
        Print JSON: the models, and how the best epoch did on the validation set.
    output
        The folder of the model.
    """
    from proxyhash.data import load_dataset, make_split
    from proxyhash.experiments.trial import parse_method
    from proxyhash.models.runtime import find_device
    from proxyhash.training.config import OptimConfig
    from proxyhash.training.fit import ShallowOrder, is_shallow
    from proxyhash.training.train import TrainConfig
    from proxyhash.utils.distributed import init_distributed

    lengths = _lengths(bits)
    folders = _folders(output, lengths)
    if (finetune and backbone_lr == 0) or (backbone_lr and not finetune):
        raise InputError("--backbone-lr is the learning rate of --finetune: above 0 with it, and not given without it.")
    method, own = parse_method(method)
    settings = _united(own, _given(tau=tau, triplet=triplet, margin=margin))
    changes = _given(epochs=epochs, batch_size=batch_size, lr=lr, hidden_dim=hidden_dim, dropout=dropout)
    changes |= _given(
        ema_decay=ema_decay, backbone_lr=backbone_lr, progressive_resize=progressive_resize, freeze_bn=freeze_bn or None
    )
    order: TrainConfig | ShallowOrder
    if is_shallow(method):
        _refuse_plan(method, changes, finetune=finetune)
        order = ShallowOrder(lengths, method, settings, backbone, not no_pretrained, image_size, transform, seed)
    else:
        plan = OptimConfig.finetune(**changes) if finetune else OptimConfig.frozen(**changes)
        order = TrainConfig(lengths, method, settings, backbone, not no_pretrained, image_size, transform, plan, seed)
    device = find_device(device)
    first = init_distributed().is_main_process
    with progress_bars(enabled=first) as progress:
        dataset = load_dataset(data, data_dir=data_dir, strict=strict, progress=progress)
        if tags is not None:
            dataset = dataset.with_frequent_tags(tags)
        if dataset.kind == "unlabeled" and not is_shallow(method):
            raise InputError(f"{data} has no labels to learn from; without them use --method itq, or proxyhash quickstart.")
        unlabeled = is_shallow(method) and (protocol == "none" or dataset.kind == "unlabeled")
        split = None if unlabeled else make_split(dataset, protocol, seed=seed, round=round_, validation=validation)
        report = _reporter(order, tensorboard if first else None, heard=first and not json_)
        hashers = _hashers(dataset, split, order, run_folder(output), resume, device, progress, report)
        for folder, hasher in zip(folders, hashers, strict=True) if first else ():
            progress("saving and exporting", folders.index(folder) / len(folders))
            hasher.record["data"] = {"path": _remembered(data), "tags": tags, "round": round_}
            hasher.save(folder)
    if not first:
        return
    made = [{"model": str(folder), "bits": each.bits, **each.record} for folder, each in zip(folders, hashers, strict=True)]
    measure = "" if split is None else f"; measure it with: proxyhash evaluate model {folders[0]}"
    print_result(
        {"models": made, "problems": dataset.problems.as_dict()},
        *(f"Left out: {sentence}" for sentence in dataset.problems.sentences()),
        f"Saved {', '.join(map(str, folders))}{measure}",
        as_json=json_,
    )


def _hashers(
    dataset: "Dataset",
    split: "Split | None",
    order: Any,
    run: Path,
    resume: bool,
    device: str,
    progress: "Progress",
    report: "Callable[[dict[str, float]], None]",
) -> "list[Hasher]":
    """Fit or train, as the order says."""
    from proxyhash.training.fit import ShallowOrder, fit_hashers
    from proxyhash.training.train import train_hashers

    if isinstance(order, ShallowOrder):
        return fit_hashers(dataset, split, order, progress=progress)
    assert split is not None
    return train_hashers(dataset, split, order, run, resume=resume, device=device, progress=progress, report=report)


def _reporter(order: Any, tensorboard: Path | None, *, heard: bool) -> "Callable[[dict[str, float]], None]":
    """Return what is told of every epoch: it prints a line, and writes for TensorBoard."""
    from proxyhash.training.tensorboard import tensorboard_writer

    console = status_console(enabled=heard)
    board = None if tensorboard is None else tensorboard_writer(tensorboard)

    def report(metrics: dict[str, float]) -> None:
        console.print(_line(metrics, order.optim.epochs))
        if board is not None:
            board(metrics)

    return report


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _united(own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return settings that were typed with the method and as options of the command, each once."""
    for name in own.keys() & given.keys():
        raise InputError(f"{name} is given twice: with --method and as --{name}.")
    return own | given


def _refuse_plan(method: str, changes: dict[str, Any], *, finetune: bool) -> None:
    """Refuse what only means something for a network that is trained."""
    from proxyhash.methods import get_method

    title = get_method(method).title
    if finetune:
        raise InputError(f"{title} trains no network and cannot be fine-tuned.")
    if changes:
        raise InputError(
            f"{title} trains no network, so that --{next(iter(changes)).replace('_', '-')} means nothing to it."
        )


def export(model: Path, /, *, output: Annotated[Path, Parameter(alias="-o")], json_: Json = False) -> None:
    """Write a model as an ONNX file: pixels (n, 3, size, size) from 0 to 255 in, nu (n, bits) out; its signs are the code.

    Parameters
    ----------
    model
        The folder of a trained model.
    output
        The .onnx file.
    json_
        Print JSON: the shapes of what goes in and comes out.
    """
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.onnx_export import export_onnx

    check_writable(output)
    hasher = Hasher.load(model)
    export_onnx(hasher.network, output, hasher.transform.size)
    size, outputs = hasher.transform.size, hasher.head.outputs
    print_result(
        {"file": str(output), "pixels": [None, 3, size, size], "nu": [None, outputs]},
        f"{output}: pixels (n, 3, {size}, {size}) from 0 to 255 -> nu (n, {outputs}); signs verified.",
        as_json=json_,
    )


def run_folder(output: Path) -> Path:
    """Return where a run keeps its checkpoints and its log: beside its model."""
    return output.with_name(f"{output.name}.run")


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--bits takes whole numbers with commas between them, such as 16,32,64, not {text}.") from None


def _folders(output: Path, lengths: tuple[int, ...]) -> list[Path]:
    """Return the folder of each model, once it is sure that they can be written and nothing else is lost."""
    from proxyhash.models.storage import CONFIG, check_replaceable

    folders = [output] if len(lengths) == 1 else [output / str(bits) for bits in lengths]
    if len(lengths) > 1 and (output / CONFIG).is_file():
        raise InputError(f"{output} is a model of one length; choose another folder for several.")
    for folder in folders:
        check_replaceable(folder)
        check_writable(folder / CONFIG)
    return folders


def _line(metrics: dict[str, float], epochs: int) -> str:
    parts = [f"epoch {metrics['epoch']:.0f}/{epochs}", f"loss {metrics['loss']:.3f}"]
    for name, value in metrics.items():
        if name.startswith(("map_", "accuracy_", "binarisation_error_")):
            what, bits = name.rsplit("_", 1)
            label = {"map": "validation mAP", "accuracy": "accuracy", "binarisation_error": "binarisation error"}[what]
            parts.append(f"{label}@{bits} {value:.3f}")
    return ", ".join([*parts, f"{metrics['images_per_second']:,.0f} images/s"])


def _remembered(data: str) -> str:
    """Return a data set's name, or the whole path of a folder: the model may be used from elsewhere."""
    from proxyhash.data import list_datasets

    return data if data in list_datasets() else str(Path(data).resolve())
