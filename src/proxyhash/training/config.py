"""Configuration of training, with the same keys on the command line, in TOML files and in Python."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from proxyhash.codes.bits import MAX_BITS
from proxyhash.methods import check_settings, get_method, parse_method
from proxyhash.models.device import AUTO, check_device_name
from proxyhash.models.precision import Precision, check_precision
from proxyhash.training.goals import GoalSettings, goal_settings
from proxyhash.utils.config import check_keys, check_table, from_mapping, read_toml
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int, shorten

if TYPE_CHECKING:
    from proxyhash.models.backbones.base import Backbone

Finetune = bool | int | Literal["all", "last"]

MAX_COUNT = 10**9  # epochs, images of a batch, hidden units; more are a mistyped number


_ADDED = {"cached_crops": 1, "pretrained_share": 0.0}  # settings that release 0.1 did not have


@dataclass(frozen=True)
class OptimConfig:
    """Settings of the optimizer, the schedule and the regularization.

    The defaults of the class are those of a head on frozen features, as `OptimConfig.frozen` gives them;
    `OptimConfig.finetune` has those of a network that is trained end to end, and `OptimConfig.partial` those of its upper
    stages.

    Parameters
    ----------
    epochs
        Passes over the training images.
    batch_size
        Images per step, over all processes.
    lr
        Peak learning rate of AdamW for the heads and the method's own parameters.
    backbone_lr
        Peak learning rate for the backbone; 0 keeps it frozen.
    weight_decay
        Weight decay of matrices; biases and normalization have none.
    warmup
        Fraction of the steps in which the learning rates rise linearly; a cosine to zero follows.
    hidden_dim
        Hidden units of the head; 0 for a single layer.
    dropout
        Dropout before the last layer.
    progressive_resize
        Image side in the first epoch of fine-tuning, as a fraction of the full side.
    ema_decay
        Decay of the exponential moving average of the weights, e.g. 0.999; 0 for none.
    bn_momentum
        Momentum of the backbone's batch normalization.
    freeze_bn
        Keep the running statistics of the backbone's batch normalization.
    grad_clip
        Largest norm of the gradient; 0 for no clipping.
    checkpoint_seconds
        Time between checkpoints within an epoch.
    cached_crops
        Versions of each image whose activations are cached for partial fine-tuning: 1 for that of the evaluation, more for
        random crops beside it.
    pretrained_share
        Share of the backbone's initial weights in those of the model, the rest of which are the trained ones (WiSE-FT).

    Raises
    ------
    InputError
        For a value out of range.

    Examples
    --------
    >>> OptimConfig.frozen(epochs=20).batch_size
    256
    >>> OptimConfig.finetune().backbone_lr
    0.001
    """

    epochs: int = 12  # 6 epochs reach 90 % of the final mAP on frozen features; 12 is safe.
    batch_size: int = 256
    lr: float = 5e-3  # Better than 1e-3 and 2e-3 on the validation set of CIFAR-100.
    backbone_lr: float = 0.0
    weight_decay: float = 0.02
    warmup: float = 0.2
    hidden_dim: int = 2048  # A linear map of frozen features reaches too few of the codes.
    dropout: float = 0.0  # The training images are the database: a closer fit retrieves better.
    progressive_resize: float = 1.0
    ema_decay: float = 0.0
    bn_momentum: float = 0.1  # The 0.01 of the pretrained networks is too slow for a few epochs with a high learning rate.
    freeze_bn: bool = False  # For batches that are too small for good statistics.
    grad_clip: float = 5.0  # A guard against a single bad batch.
    checkpoint_seconds: float = 120.0  # A killed run loses at most this much.
    cached_crops: int = 1  # Each takes as much disk as the first.
    pretrained_share: float = 0.0  # The trained weights alone.

    @classmethod
    def frozen(cls, **changes: Any) -> Self:
        """Return the settings for a head on frozen features; a change of None keeps the default."""
        return cls()._replace(changes)

    @classmethod
    def finetune(cls, **changes: Any) -> Self:
        """Return the settings for training the whole network; a change of None keeps the default.

        The network adapts its features, so the head needs no hidden layer. Early epochs learn as much from small images.
        """
        defaults = cls(batch_size=128, lr=4e-3, backbone_lr=1e-3, hidden_dim=0, progressive_resize=0.5)
        return defaults._replace(changes)

    @classmethod
    def partial(cls, **changes: Any) -> Self:
        """Return the settings for training the upper stages of the network; a change of None keeps the default.

        The activations below are cached at one size, so images do not grow from epoch to epoch.
        """
        defaults = cls(epochs=6, batch_size=128, lr=4e-3, backbone_lr=1e-3, hidden_dim=0)
        return defaults._replace(changes)

    @classmethod
    def of(cls, finetune: Finetune, **changes: Any) -> Self:
        """Return the settings for what is trained of the backbone: nothing, everything or its upper stages.

        Examples
        --------
        >>> [OptimConfig.of(finetune).epochs for finetune in (False, "all", "last")]
        [12, 12, 6]
        """
        finetune = check_finetune(finetune)
        if is_partial(finetune):
            return cls.partial(**changes)
        return cls.finetune(**changes) if finetune else cls.frozen(**changes)

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        # Batch sizes of an epoch differ by at most one: from 4 on, no batch has a single image, which has no variance.
        for name, minimum in (("epochs", 1), ("batch_size", 4), ("hidden_dim", 0), ("cached_crops", 1)):
            check_int(name, getattr(self, name), minimum, MAX_COUNT)
        for name in ("lr", "checkpoint_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}.")
        for name in ("warmup", "dropout", "ema_decay", "bn_momentum", "pretrained_share"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}.")
        if not 0 < self.progressive_resize <= 1:
            raise InputError(f"progressive_resize must be above 0 and at most 1, not {self.progressive_resize}.")
        for name in ("backbone_lr", "weight_decay", "grad_clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be 0 or above, not {getattr(self, name)}.")

    def lr_factor(self, fraction: float) -> float:
        """Return the factor of the learning rates after a fraction of all steps: linear warm-up, then half a cosine."""
        if fraction < self.warmup:
            return fraction / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (fraction - self.warmup) / (1 - self.warmup)))

    def resize_factor(self, epoch: int) -> float:
        """Return the image side in an epoch as a fraction of the full side, which the last third of the epochs has."""
        grown = min(1.0, 1.5 * epoch / self.epochs)
        return self.progressive_resize + (1 - self.progressive_resize) * grown

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as records and runs have them: without those of later releases that have their default."""
        return {name: value for name, value in asdict(self).items() if name not in _ADDED or value != _ADDED[name]}

    def _replace(self, changes: dict[str, Any]) -> Self:
        check_keys("OptimConfig", changes, [field.name for field in fields(self)])
        return from_mapping(type(self), asdict(self) | {name: value for name, value in changes.items() if value is not None})


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of a training run.

    Parameters
    ----------
    data
        Name of a data set, or a folder.
    tags
        Number of most frequent tags to keep; None for all.
    protocol
        How the data are split; None for the default of the data set. "none", for a method that needs no labels, learns from
        all images.
    fold
        Fold of a transfer protocol, 0 to 3.
    validation
        What is held out of the training set to choose the best epoch; None for the default of the protocol.
    bits
        Code lengths. One network with a head for each of them is trained.
    method
        Name from `list_methods`.
    settings
        Settings of the method.
    backbone
        Name from `list_backbones`.
    pretrained
        Use the pretrained weights of the backbone, if there are any.
    finetune
        What is trained of the backbone: False for nothing, only heads on its frozen features; True or "all" for everything;
        "last" for its last stages, or a number of upper stages, on cached activations of those below.
    image_size
        Side of the images in pixels; None for a default by backbone and images.
    transform
        Preparation and augmentation of images: small, photo, paper-cifar or paper-256; None for a default by the images.
    optim
        Optimization settings; None for those of `OptimConfig.of(finetune)`.
    seed
        Decides every random draw.
    device
        auto, cpu, cuda, cuda:N or mps; None for auto, a GPU if there is one.
    precision
        Precision of the forward pass in training: float32, bfloat16 or float16. Weights and the loss are float32. None for
        bfloat16 or float16 on a CUDA GPU, and float32 elsewhere.

    Raises
    ------
    InputError
        For an unknown method or setting, with a suggestion, and for values that do not fit together.

    Examples
    --------
    >>> config = TrainConfig(bits=(16, 32), finetune=True)
    >>> config.method, config.optim.batch_size
    ('shclm', 128)
    >>> TrainConfig.from_mapping({"bits": 32, "method": "shclm:triplet=1", "optim": {"epochs": 20}}).settings
    {'triplet': 1}
    >>> TrainConfig.from_mapping({"bits": 32, "optim": {"epoch": 20}})
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: OptimConfig has no setting 'epoch'; did you mean epochs?
    """

    data: str | None = None
    tags: int | None = None
    protocol: str | None = None
    fold: int = 0
    validation: Literal["images", "classes", "none"] | None = None
    bits: tuple[int, ...] = (32,)
    method: str = "shclm"
    settings: dict[str, Any] = field(default_factory=dict)
    backbone: str = "efficientnet_lite0"
    pretrained: bool = True
    finetune: Finetune = False
    image_size: int | None = None
    transform: str | None = None
    optim: OptimConfig = None  # type: ignore[assignment]  # __post_init__ replaces None.
    seed: int = 0
    device: str | None = None
    precision: Precision | None = None

    def __post_init__(self) -> None:
        """Fill in the optimization settings and check everything that needs no data."""
        object.__setattr__(self, "finetune", check_finetune(self.finetune))
        if vars(self)["optim"] is None:
            object.__setattr__(self, "optim", OptimConfig.of(self.finetune))
        check_settings(self.method, self.settings)
        check_precision(self.precision)
        check_device_name(self.device or AUTO)
        check_int("seed", self.seed, 0)
        check_bits(self.bits)
        if not get_method(self.method).trains:
            self._check_untrained()
        else:
            check_optim(self.finetune, self.optim)

    def _check_untrained(self) -> None:
        info, default = get_method(self.method), OptimConfig()
        if self.finetune:
            raise InputError(f"{info.title} trains no network and cannot be fine-tuned.")
        if self.precision is not None:
            raise info.option_error("precision")
        for name, value in asdict(self.optim).items():
            if value != getattr(default, name):
                raise info.option_error(name)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> Self:
        """Return the configuration of a mapping, such as a TOML file; None stands for the default.

        `bits` may be a number, `method` may carry settings, as in "joint:tau=4", and `optim` holds changes of the defaults.
        There may also be a `goal`, known-classes or new-classes, which gives the defaults of method and optimizer.
        """
        values = {name: value for name, value in given.items() if value is not None}
        for table in ("settings", "optim"):
            check_table(table, values.get(table, {}))
        check_keys(cls.__name__, values, [*(field.name for field in fields(cls)), "goal"])
        values["finetune"] = check_finetune(values.get("finetune", False))
        chosen = GoalSettings(cls.method)
        if goal := values.pop("goal", None):
            chosen = settings_for(goal, values["finetune"])
        method, settings = values.get("method"), values.get("settings", {})
        values["method"], own = parse_method(method or chosen.method)
        values["settings"] = _merge_settings(own, settings) if method else {**own, **settings}
        if isinstance(values.get("bits"), int):
            values["bits"] = [values["bits"]]
        optim = {**asdict(OptimConfig.of(values["finetune"], **chosen.optim)), **values.get("optim", {})}
        values["optim"] = asdict(from_mapping(OptimConfig, optim))
        return from_mapping(cls, values)

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read the configuration from a TOML file, with tables [settings] and [optim]."""
        return cls.from_mapping(read_toml(path))

    def to_mapping(self) -> dict[str, Any]:
        """Return a mapping that `from_mapping` reads; values that are None are left out."""
        return {name: value for name, value in asdict(self).items() if value is not None} | {"bits": list(self.bits)}

    def weight_settings(self) -> dict[str, Any]:
        """Return the settings that decide the weights, given the split: what a model and a run folder record."""
        names = (
            "bits",
            "method",
            "settings",
            "backbone",
            "pretrained",
            "finetune",
            "image_size",
            "transform",
            "optim",
            "seed",
        )
        content = asdict(self)
        content["optim"] = self.optim.as_dict()
        settings = {name: content[name] for name in names if name != "optim" or get_method(self.method).trains}
        # A default precision is not recorded, so that runs of earlier releases resume.
        return settings if self.precision is None else {**settings, "precision": self.precision}


def check_bits(bits: tuple[int, ...]) -> None:
    """Raise an `InputError` unless code lengths are different whole numbers from 1 to `MAX_BITS`."""
    if not bits or min(bits) < 1 or len(set(bits)) != len(bits):
        raise InputError(f"Code lengths must be different whole numbers from 1 upwards, not {bits}.")
    check_int("bits", max(bits), 1, MAX_BITS)


def check_finetune(finetune: object) -> Finetune:
    """Return what is trained of the backbone: False, True, "last" or a number of upper stages.

    Raises
    ------
    InputError
        For anything else.

    Examples
    --------
    >>> check_finetune("all"), check_finetune("last"), check_finetune("3")
    (True, 'last', 3)
    >>> check_finetune("most")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: finetune takes all, last or a number of upper stages, not 'most'.
    """
    if isinstance(finetune, bool) or finetune == "last":
        return finetune
    if finetune == "all":
        return True
    number = int(finetune) if isinstance(finetune, str) and finetune.isdecimal() else finetune
    if type(number) is not int or number < 1:
        raise InputError(f"finetune takes all, last or a number of upper stages, not {shorten(finetune)}.")
    return number


def settings_for(goal: str, finetune: Finetune) -> GoalSettings:
    """Return the method and the optimizer settings for a goal, see `goal_settings`, by what is trained of the backbone."""
    if is_partial(finetune):
        return goal_settings(goal, "upper stages")
    return goal_settings(goal, "everything" if finetune else "head")


def is_partial(finetune: Finetune) -> bool:
    """Return whether only upper stages of the backbone are trained."""
    return not isinstance(finetune, bool)


def resolve_stages(finetune: Finetune, backbone: "Backbone") -> Finetune:
    """Return the number of upper stages for "last", and everything else as it is."""
    return backbone.last_stages if finetune == "last" else finetune


def check_optim(finetune: Finetune, optim: OptimConfig) -> None:
    """Raise an `InputError` for optimizer settings that do not fit what is trained of the backbone."""
    if (finetune is not False) != (optim.backbone_lr > 0):
        raise InputError("backbone_lr is the learning rate of fine-tuning: above 0 with finetune, and 0 without it.")
    if finetune is False and optim.pretrained_share:
        raise InputError("pretrained_share averages the weights of a backbone that is trained: use it with finetune.")
    if is_partial(finetune) and optim.progressive_resize != 1:
        raise InputError("progressive_resize has no effect on partial fine-tuning, whose activations have one size.")
    if not is_partial(finetune) and optim.cached_crops != 1:
        raise InputError('cached_crops is a setting of partial fine-tuning: use it with finetune = "last" or a number.')


def _merge_settings(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that were typed with the method and given by themselves, each once."""
    for name in own:
        if name in given:
            raise InputError(f"{name} is given twice: with the method and by itself.")
    return {**own, **given}
