"""Data sets from map-style datasets of torch."""

import uuid
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxyhash.data.dataset import Dataset
from proxyhash.data.decoding import UnreadableImageError, describe_error
from proxyhash.data.image_objects import ImageObjects, to_image
from proxyhash.data.images import SESSION
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import UNLABELED, ClassLabels, Labels, TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

REPORT_EVERY = 100  # items between two reports of progress


class MapStyleImages(ImageObjects):
    """The images of a map-style dataset. Items are read one at a time: datasets are rarely made for several threads."""

    def __init__(self, dataset: Any, name: str, fingerprint: str) -> None:
        self.dataset, self.name, self._fingerprint, self._lock = dataset, name, fingerprint, Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave the lock out, for worker processes."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a new lock."""
        vars(self).update(state, _lock=Lock())

    def __len__(self) -> int:
        """Return N."""
        return len(self.dataset)

    def key(self, index: int) -> str:
        """Return a numbered name."""
        return f"{self.name}-{index:06d}"

    def fingerprint(self) -> str:
        """Return what the caller gave, or digits for this process only."""
        return self._fingerprint

    def item(self, index: int) -> tuple[Any, Any]:
        """Return the image and the label; an item whose code raises is an unreadable image."""
        try:
            with self._lock:
                found = self.dataset[index]
        except Exception as error:  # the code of the user may raise anything
            raise UnreadableImageError(self.key(index), f"cannot be read ({describe_error(error)})") from error
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise InputError(f"{self.key(index)} is a {type(found).__name__}, and an item is a pair (image, label).")
        return found[0], found[1]

    def image(self, index: int, min_side: int | None = None) -> Image.Image:  # noqa: ARG002
        """Return an image of mode RGB."""
        return to_image(self.item(index)[0], self.key(index))


def from_torch(
    dataset: Any,
    class_names: Sequence[str] | None = None,
    *,
    name: str | None = None,
    fingerprint: str | None = None,
    strict: bool = False,
    progress: Progress = no_progress,
) -> Dataset:
    """Return a data set from a map-style dataset of torch, whose items are pairs (image, label).

    Images are read when they are needed. Labels are read once, from `dataset.targets` if there are such, as torchvision has
    them, or from all items. Leave random transforms and the normalization out: proxyhash augments and normalizes itself.

    Parameters
    ----------
    dataset
        An object with a length and indices, such as a `torch.utils.data.Dataset`. An image is one of Pillow, an array
        (H, W, C) or a tensor (C, H, W), of bytes or floats from 0 to 1. A label is the number of a class, None or -1 for
        none, or a vector of 0 and 1, one for each tag.
    class_names
        Names of the classes or tags; None for `dataset.classes`, or else their numbers.
    name
        The name of the data set; None for the name of the class.
    fingerprint
        Digits of the version of the images. With them, features are cached on disk; None, as nothing says whether the images
        are those of an earlier run, caches them until the process ends.
    strict
        Raise at the first item that cannot be used, instead of counting it in `Dataset.skipped`.
    progress
        Called with the share of the labels that are read.

    Raises
    ------
    InputError
        If the items are not such pairs.

    Examples
    --------
    >>> items = [(np.zeros((8, 8, 3), np.uint8), 0), (np.ones((8, 8, 3), np.uint8), 1)]
    >>> from_torch(items, ["black", "almost black"]).labels_of(1)
    ('almost black',)
    """
    name = name or type(dataset).__name__
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise InputError(f"Data of the type {name} have no length and no indices; give a map-style dataset, or a folder.")
    if not len(dataset):
        raise InputError(f"{name} has no items.")
    given = f"given-{fingerprint}" if fingerprint is not None else f"{SESSION}{uuid.uuid4().hex}"
    images, skipped = MapStyleImages(dataset, name, given), SkippedItems(strict)
    first = _check_first(images)
    values = _stored_labels(dataset, first) or _read_labels(images, strict, progress)
    names = class_names if class_names is not None else getattr(dataset, "classes", None)
    return Dataset(name, images, _to_labels(values, names, name), skipped=skipped)


def _check_first(images: MapStyleImages) -> Any:
    """Return the label of the first item, after a check of the types of both; None if the item cannot be read."""
    try:
        image, label = images.item(0)
    except UnreadableImageError:  # it is counted where images are read
        return None
    if not isinstance(image, Image.Image):
        to_image(image, images.key(0))
    return label


def _stored_labels(dataset: Any, first: Any) -> list[Any] | None:
    """Return the labels that torchvision's datasets keep in `targets`, if the items have the same."""
    stored = getattr(dataset, "targets", None)
    if stored is None or first is None or getattr(dataset, "target_transform", None) is not None:
        return None
    try:
        same = len(stored) == len(dataset) and np.array_equal(np.asarray(stored[0]), np.asarray(first))
    except Exception:  # an attribute of this name that is something else
        return None
    return list(stored) if same else None


def _read_labels(images: MapStyleImages, strict: bool, progress: Progress) -> list[Any]:
    """Return the labels of all items, None for one that cannot be read."""
    values: list[Any] = []
    for index in range(len(images)):
        try:
            values.append(images.item(index)[1])
        except UnreadableImageError:
            if strict:
                raise
            values.append(None)
        if index % REPORT_EVERY == 0:
            progress("reading labels", index / len(images))
    progress("reading labels", 1.0)
    return values


def _to_labels(values: Sequence[Any], names: Sequence[str] | None, owner: str) -> Labels | None:
    known = [index for index, value in enumerate(values) if value is not None]
    if not known:
        return None
    try:
        rows = np.stack([np.asarray(values[index]) for index in known])
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"The labels of {owner} have several shapes; they are numbers of classes, or all vectors."
        ) from error
    if rows.ndim == 1 and rows.dtype.kind in "iu":
        return class_labels(_spread(rows, known, len(values), UNLABELED), names)
    if rows.ndim == 2 and rows.dtype.kind in "biuf" and np.isin(rows, (0, 1)).all():
        return tag_labels(_spread(rows != 0, known, len(values), False), names)
    raise InputError(
        f"The labels of {owner} are {rows.dtype} {rows.shape[1:]}, and not numbers of classes or vectors of 0 and 1."
    )


def _spread(rows: NDArray[Any], known: Sequence[int], count: int, missing: Any) -> NDArray[Any]:
    """Return (count, ...) with the rows at the known indices."""
    spread = np.full((count, *rows.shape[1:]), missing, rows.dtype if rows.dtype == bool else np.int64)
    spread[known] = rows
    return spread


def class_labels(values: NDArray[np.int64], names: Sequence[str] | None) -> ClassLabels:
    """Return class labels; without names, the distinct numbers are numbered anew and are the names."""
    if names is not None:
        return ClassLabels(values, tuple(map(str, names)))
    present = np.unique(values[values != UNLABELED])
    renumbered = np.where(values == UNLABELED, UNLABELED, np.searchsorted(present, values))
    return ClassLabels(renumbered, tuple(map(str, present)))


def tag_labels(values: NDArray[np.bool_], names: Sequence[str] | None) -> TagLabels:
    """Return tags; without names, they are numbered."""
    return TagLabels(values, tuple(map(str, range(values.shape[1]) if names is None else names)))
