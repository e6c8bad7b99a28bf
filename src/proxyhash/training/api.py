"""`proxyhash.train`: training in one call."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, overload

from torch import nn

from proxyhash.data import DataLike
from proxyhash.models.device import find_device
from proxyhash.models.hasher import Hasher
from proxyhash.training.config import OptimConfig, TrainConfig
from proxyhash.training.run import absolute_data, load_training_data
from proxyhash.training.train import train_hashers
from proxyhash.training.trainer import Metrics
from proxyhash.utils.config import check_keys, check_table
from proxyhash.utils.progress import Progress, no_progress


@overload
def train(data: DataLike, bits: int = 32, method: str | None = None, **options: Any) -> Hasher: ...


@overload
def train(data: DataLike, bits: Sequence[int], method: str | None = None, **options: Any) -> list[Hasher]: ...


def train(
    data: DataLike,
    bits: int | Sequence[int] = 32,
    method: str | None = None,
    *,
    run_dir: str | Path | None = None,
    resume: bool = False,
    strict: bool = False,
    data_dir: str | Path | None = None,
    progress: Progress = no_progress,
    report: Callable[[Metrics], None] = lambda _: None,
    **options: Any,
) -> Hasher | list[Hasher]:
    """Train a hasher, as `proxyhash train` does.

    Parameters
    ----------
    data
        A folder of images, the name of a data set, a `Dataset`, or a dataset of torch or of Hugging Face.
    bits
        The code length; or several, for which one network with a head for each is trained.
    method
        A name from `proxyhash methods`, with settings as in "shclm:triplet=1" if you like; None for "shclm", or for the
        method of the `goal`.
    run_dir
        Folder for checkpoints and log; None for a temporary one, from which nothing can be resumed.
    resume
        Continue from the last checkpoint in `run_dir`.
    strict
        Raise at the first image that cannot be used, instead of leaving it out.
    data_dir
        Folder to look for a named data set first.
    progress
        Called with the name of the work and the fraction that is done.
    report
        Called with the metrics of every epoch.
    **options
        Any other key of `TrainConfig` (`backbone`, `finetune`, `protocol`, `settings`, `seed`, `device`, ...) and any of
        `OptimConfig` (`epochs`, `lr`, `batch_size`, `hidden_dim`, ...); None stands for the default. `backbone` is a name,
        or a network of your own by `wrap_backbone`. `goal` is "known-classes" or "new-classes", see `goal_settings`.

    Returns
    -------
    Hasher or list of Hasher
        One for a single code length, a list in the order of `bits` for several. `Hasher.save` writes a model folder.

    Raises
    ------
    InputError
        For an unknown option, with a suggestion, and for data that the method cannot learn from.

    Examples
    --------
    >>> import proxyhash
    >>> hasher = proxyhash.train("digits", bits=16, backbone="convnet", epochs=2)
    >>> hasher.bits, round(proxyhash.evaluate(hasher).map, 1)
    (16, 0.8)
    >>> [one.bits for one in proxyhash.train("digits", bits=[8, 16], method="itq", backbone="convnet")]
    [8, 16]
    >>> proxyhash.train("digits", epoch=2)
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: train has no setting 'epoch'; did you mean epochs?
    """
    module = options.pop("backbone") if isinstance(options.get("backbone"), nn.Module) else None
    several = list(bits) if isinstance(bits, Sequence) else None
    named = str(data) if isinstance(data, (str, Path)) else None
    config = _build_config({"data": named, "bits": several or bits, "method": method}, options)
    config = replace(config, device=find_device(config.device))
    source = None if data_dir is None else Path(data_dir)
    dataset, split = load_training_data(config, data, strict=strict, data_dir=source, progress=progress)
    config = replace(config, data=absolute_data(named))
    folder = None if run_dir is None else Path(run_dir)
    options = {"resume": resume, "backbone_module": module, "progress": progress, "report": report}
    hashers = train_hashers(dataset, split, config, folder, **options)
    for hasher in hashers:  # `evaluate` makes the same split again
        hasher.metadata.setdefault("data", {"path": None, "tags": config.tags, "fold": config.fold})
    return hashers[0] if several is None else hashers


def _build_config(given: dict[str, Any], options: dict[str, Any]) -> TrainConfig:
    """Return the configuration of arguments and options; those of `OptimConfig` go to `optim`."""
    own, optim_names = (
        [field.name for field in fields(config) if field.name not in given] for config in (TrainConfig, OptimConfig)
    )
    own.append("goal")
    check_keys("train", options, own + optim_names)
    optim = options.get("optim") or {}
    optim = asdict(optim) if isinstance(optim, OptimConfig) else optim
    check_table("optim", optim)
    changes = {name: options[name] for name in optim_names if options.get(name) is not None}
    return TrainConfig.from_mapping(
        {**given, **{name: options[name] for name in own if name in options}, "optim": {**optim, **changes}}
    )
