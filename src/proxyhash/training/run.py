"""Training from a configuration to the folders of models."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from proxyhash.data import DataLike, Dataset, Split, list_datasets, load_dataset, make_split
from proxyhash.methods import get_method
from proxyhash.models.device import find_device
from proxyhash.models.hasher import Hasher
from proxyhash.models.storage import CONFIG, check_replaceable
from proxyhash.training.config import TrainConfig, check_bits
from proxyhash.training.train import train_hashers
from proxyhash.training.trainer import Metrics
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.distributed import DistributedContext, init_distributed
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


@dataclass(frozen=True)
class TrainedModels:
    """Result of `train_models`: a folder and a hasher for each code length."""

    folders: list[Path]
    hashers: list[Hasher]
    dataset: Dataset
    split: Split | None

    def as_dict(self) -> dict[str, Any]:
        """Return the models with their metadata, and the images that were left out."""
        pairs = zip(self.folders, self.hashers, strict=True)
        models = [{"model": str(folder), "bits": hasher.bits, **hasher.metadata} for folder, hasher in pairs]
        return {"models": models, "skipped": self.dataset.skipped.as_dict()}


def train_models(
    config: TrainConfig,
    output: Path,
    *,
    resume: bool = False,
    strict: bool = False,
    data_dir: Path | None = None,
    distributed: DistributedContext | None = None,
    progress: Progress = no_progress,
    report: Callable[[Metrics], None] = lambda _: None,
) -> TrainedModels:
    """Load the data of a configuration, train, and save a model folder for each code length.

    Parameters
    ----------
    config
        Configuration; its `data` is required.
    output
        Folder of the model; with several code lengths, each model is a folder in it, such as output/32. Checkpoints and log
        are in a folder beside it, see `run_folder`.
    resume
        Continue from the last checkpoint.
    strict
        Stop at the first image that cannot be used, instead of leaving it out.
    data_dir
        Folder to look for a named data set first.
    distributed
        Processes that share the training; None for those that torchrun started. The main process saves.
    progress
        Called with the name of the work and the fraction that is done.
    report
        Called with the metrics of every epoch.

    Returns
    -------
    TrainedModels

    Raises
    ------
    InputError
        For a folder that cannot be written, and for data that the method cannot learn from.

    Examples
    --------
    >>> import tempfile
    >>> config = TrainConfig(data="digits", bits=(8,), method="itq", backbone="convnet")
    >>> folder = Path(tempfile.mkdtemp()) / "model"
    >>> train_models(config, folder).folders == [folder]
    True
    """
    distributed = distributed or init_distributed()
    folders = model_folders(output, config.bits)
    find_device(config.device)  # a device that is not there is an error before the data are read
    dataset, split = load_training_data(config, strict=strict, data_dir=data_dir, progress=progress)
    hashers = train_hashers(
        dataset,
        split,
        replace(config, data=absolute_data(config.data)),
        run_folder(output),
        resume=resume,
        distributed=distributed,
        progress=progress,
        report=report,
    )
    for number, (folder, hasher) in enumerate(zip(folders, hashers, strict=True)):
        if distributed.is_main_process:
            progress("saving and exporting", number / len(folders))
            hasher.save(folder)
    return TrainedModels(folders, hashers, dataset, split)


def load_training_data(
    config: TrainConfig,
    data: DataLike | None = None,
    *,
    strict: bool = False,
    data_dir: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[Dataset, Split | None]:
    """Return the data set and its split, which is None if all images are learned from without labels.

    `data` replaces that of the configuration.
    """
    data = config.data if data is None else data
    if data is None:
        raise InputError("Say what to learn from: the name of a data set, or a folder.")
    dataset = load_dataset(data, data_dir=data_dir, strict=strict, progress=progress)
    if config.tags is not None:
        dataset = dataset.with_frequent_tags(config.tags)
    trains = get_method(config.method).trains
    if dataset.labels is None and trains:
        name = config.data or dataset.name
        raise InputError(f"{name} has no labels to learn from; without them use --method itq, or proxyhash quickstart.")
    if not trains and (config.protocol == "none" or dataset.labels is None):
        return dataset, None
    split = make_split(dataset, config.protocol, seed=config.seed, fold=config.fold, validation=config.validation)
    return dataset, split


def model_folders(output: Path, bits: tuple[int, ...]) -> list[Path]:
    """Return the folder of each model, after checks that it can be written and that nothing else is lost."""
    check_bits(bits)
    folders = [output] if len(bits) == 1 else [output / str(length) for length in bits]
    if len(bits) > 1 and (output / CONFIG).is_file():
        raise InputError(f"{output} is a model of one length; choose another folder for several.")
    for folder in folders:
        check_replaceable(folder)
        check_writable(folder / CONFIG)
    return folders


def run_folder(output: Path) -> Path:
    """Return the folder of checkpoints and log, beside the model."""
    return output.with_name(f"{output.name}.run")


def absolute_data(data: str | None) -> str | None:
    """Return the name of a data set, or the absolute path of a folder: the model may be used from elsewhere."""
    return data if data is None or data in list_datasets() else str(Path(data).resolve())
