"""Data sets: images, labels, and the split of each image."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from proxyhash.columns import UntypedTexts
from proxyhash.data.images import Images, Indices, Subset
from proxyhash.data.skipped import SkippedItems
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError

SplitName = Literal["train", "query", "database"]
SPLITS: tuple[SplitName, ...] = ("train", "query", "database")
NO_SPLIT = -1


@dataclass(frozen=True)
class Dataset:
    """N images with classes, with tags, or without labels.

    Parameters
    ----------
    name
        Its name.
    images
        The images.
    labels
        The labels, None if there are none.
    splits
        (N,) indices into `SPLITS`, `NO_SPLIT` (-1) for an image that the data set puts into no split.
    skipped
        Items that could not be used.
    flip_safe
        Whether a horizontal flip keeps the meaning of an image; it does not for digits.
    columns
        Further values of each image by the name of their column, such as a year or a title.

    Examples
    --------
    >>> from proxyhash.data.images import ArrayImages
    >>> pixels = np.zeros((3, 8, 8, 3), np.uint8)
    >>> dataset = Dataset("squares", ArrayImages(pixels), ClassLabels.from_names(["a", "b", "a"]))
    >>> len(dataset), dataset.kind, dataset.labels_of(1)
    (3, 'classes', ('b',))
    """

    name: str
    images: Images
    labels: ClassLabels | TagLabels | None = None
    splits: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    skipped: SkippedItems = field(default_factory=SkippedItems)
    flip_safe: bool = True
    columns: Mapping[str, UntypedTexts] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fill in missing splits, and check the number of labels."""
        if len(self.splits) == 0:
            object.__setattr__(self, "splits", np.full(len(self.images), NO_SPLIT, np.int8))
        if self.labels is not None and len(self.labels) != len(self.images):
            raise InputError(f"{self.name} has {len(self.images)} images and labels of {len(self.labels)}.")

    def __len__(self) -> int:
        """Return N."""
        return len(self.images)

    @property
    def kind(self) -> Literal["classes", "tags", "unlabeled"]:
        """Return the kind of the labels."""
        return "unlabeled" if self.labels is None else self.labels.kind

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes or tags, none for images without labels."""
        return () if self.labels is None else self.labels.names

    def require_labels(self) -> ClassLabels | TagLabels:
        """Return the labels, or raise where there are none."""
        if self.labels is None:
            raise InputError(f"{self.name} has no labels, so nothing says which images are alike.")
        return self.labels

    def require_classes(self) -> ClassLabels:
        """Return the labels, or raise where they are not classes."""
        if not isinstance(self.labels, ClassLabels):
            raise InputError(f"{self.name} has no class labels.")
        return self.labels

    def require_tags(self) -> TagLabels:
        """Return the labels, or raise where they are not tags."""
        if not isinstance(self.labels, TagLabels):
            raise InputError(f"{self.name} has no tags.")
        return self.labels

    def labeled(self) -> Indices:
        """Return the indices of images that have a class or at least one tag."""
        return np.zeros(0, np.int64) if self.labels is None else self.labels.labeled()

    def labels_of(self, index: int) -> tuple[str, ...]:
        """Return the names of an image's class or tags."""
        return () if self.labels is None else self.labels.names_of(index)

    def split_indices(self, name: SplitName) -> Indices:
        """Return the indices of labeled images of a split of the data set."""
        labeled = self.labeled()
        chosen: Indices = labeled[self.splits[labeled] == SPLITS.index(name)]
        return chosen

    def subset(self, indices: Indices) -> "Dataset":
        """Return a data set of some of the images, with the same names of classes or tags."""
        labels = None if self.labels is None else self.labels.subset(indices)
        columns = {name: UntypedTexts(texts[int(row)] for row in indices) for name, texts in self.columns.items()}
        images, splits = Subset(self.images, indices), self.splits[indices]
        return replace(self, images=images, labels=labels, splits=splits, columns=columns)

    def with_frequent_tags(self, count: int) -> "Dataset":
        """Return the images that have one of the `count` most frequent tags, and only these tags (NUS-WIDE-21)."""
        if not isinstance(self.labels, TagLabels):
            raise InputError(f"{self.name} has no tags to choose the most frequent from.")
        if not 2 <= count <= self.labels.num_classes:
            raise InputError(f"{self.name} has {self.labels.num_classes} tags: {count} of them cannot be chosen.")
        frequent = np.sort(np.argsort(-self.labels.counts(), kind="stable")[:count])
        fewer = replace(self, labels=self.labels.select_classes(frequent))
        return fewer.subset(fewer.labeled())
