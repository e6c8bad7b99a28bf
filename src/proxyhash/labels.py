"""Class labels and tags of images, with one interface."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from proxyhash.utils.errors import InputError

UNLABELED = -1
"""The class of an image without one."""


@dataclass(frozen=True, eq=False)
class ClassLabels:
    """One class for each of N images.

    Parameters
    ----------
    values
        (N,) integers that index `names`, `UNLABELED` (-1) where the class of an image is not known.
    names
        The names of the C classes.

    Examples
    --------
    >>> labels = ClassLabels.from_names(["dog", "cat", "", "dog"])
    >>> labels.names, labels.values.tolist()
    (('cat', 'dog'), [1, 0, -1, 1])
    >>> labels.subset(np.array([0, 1])).one_hot()
    array([[0., 1.],
           [1., 0.]], dtype=float32)
    """

    values: NDArray[np.int64]
    names: tuple[str, ...]

    kind: ClassVar[Literal["classes", "tags"]] = "classes"
    noun: ClassVar[Literal["class", "tag"]] = "class"
    is_multi_label: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the shape and the range of the values."""
        values = np.asarray(self.values)
        if values.ndim != 1 or values.dtype.kind not in "iu":
            raise InputError(f"Class labels must be integers (N,), not {values.dtype} {values.shape}.")
        if len(values) and not UNLABELED <= values.min() <= values.max() < len(self.names):
            raise InputError(f"Class labels must lie between {UNLABELED} and {len(self.names) - 1}: they index the names.")
        object.__setattr__(self, "values", values.astype(np.int64, copy=False))

    @classmethod
    def from_names(cls, values: Sequence[str]) -> Self:
        """Number the distinct names in their sorted order; an empty name is `UNLABELED`."""
        names = tuple(sorted({value for value in values if value}))
        number = {name: index for index, name in enumerate(names)}
        return cls(np.array([number.get(value, UNLABELED) for value in values], np.int64), names)

    def __len__(self) -> int:
        """Return N."""
        return len(self.values)

    @property
    def num_classes(self) -> int:
        """Return C, the number of names."""
        return len(self.names)

    def subset(self, indices: NDArray[Any]) -> Self:
        """Return the labels of some images, with the same names."""
        return replace(self, values=self.values[indices])

    def select_classes(self, classes: NDArray[np.int64]) -> Self:
        """Return the labels among some classes, renumbered in their order; other classes become `UNLABELED`."""
        numbers = np.full(self.num_classes + 1, UNLABELED, np.int64)  # the last entry serves UNLABELED
        numbers[classes] = np.arange(len(classes))
        return replace(self, values=numbers[self.values], names=tuple(self.names[index] for index in classes))

    def one_hot(self, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Return (N, C) with a 1 in the column of each image's class."""
        encoded = np.zeros((len(self), self.num_classes), dtype)
        encoded[self.nonzero()] = 1
        return encoded

    def nonzero(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the images and the classes of the nonzero entries of `one_hot`."""
        labeled = self.labeled()
        return labeled, self.values[labeled]

    def targets(self) -> NDArray[np.int64] | NDArray[np.float32]:
        """Return what a loss compares: the classes (N,)."""
        return self.values

    def labeled(self) -> NDArray[np.int64]:
        """Return the indices of images that have a class."""
        return np.flatnonzero(self.values != UNLABELED)

    def present_classes(self) -> NDArray[np.int64]:
        """Return the classes that occur, sorted."""
        return np.unique(self.values[self.labeled()])

    def counts(self) -> NDArray[np.int64]:
        """Return the number of images of each class (C,)."""
        return np.bincount(self.values[self.labeled()], minlength=self.num_classes)

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the name of an image's class, in a tuple that is empty for an unlabeled image."""
        value = int(self.values[index])
        return () if value == UNLABELED else (self.names[value],)

    def relevance(self, database: "Labels") -> NDArray[np.bool_]:
        """Return which items of a database have the same class, (N, items)."""
        _check_comparable(self, database)
        same: NDArray[np.bool_] = (self.values[:, None] == database.values) & (self.values[:, None] != UNLABELED)
        return same

    def has_relevant(self, database: "Labels") -> NDArray[np.bool_]:
        """Return which images have at least one relevant item in a database (N,)."""
        _check_comparable(self, database)
        return np.isin(self.values, database.present_classes())


@dataclass(frozen=True, eq=False)
class TagLabels:
    """Any number of tags for each of N images.

    Parameters
    ----------
    values
        (N, T) booleans: which image has which tag. An image without tags is unlabeled.
    names
        The names of the T tags.

    Examples
    --------
    >>> labels = TagLabels(np.array([[True, False], [True, True], [False, False]]), ("sky", "sea"))
    >>> labels.names_of(1), labels.counts().tolist(), labels.labeled().tolist()
    (('sky', 'sea'), [2, 1], [0, 1])
    >>> labels.relevance(labels).astype(int)  # images that share at least one tag
    array([[1, 1, 0],
           [1, 1, 0],
           [0, 0, 0]])
    """

    values: NDArray[np.bool_]
    names: tuple[str, ...]

    kind: ClassVar[Literal["classes", "tags"]] = "tags"
    noun: ClassVar[Literal["class", "tag"]] = "tag"
    is_multi_label: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the shape and the type of the values."""
        values = np.asarray(self.values)
        if values.ndim != 2 or values.dtype != bool or values.shape[1] != len(self.names):
            raise InputError(f"Tags must be booleans (N, {len(self.names)}), not {values.dtype} {values.shape}.")
        object.__setattr__(self, "values", values)

    def __len__(self) -> int:
        """Return N."""
        return len(self.values)

    @property
    def num_classes(self) -> int:
        """Return T, the number of names."""
        return len(self.names)

    def subset(self, indices: NDArray[Any]) -> Self:
        """Return the tags of some images, with the same names."""
        return replace(self, values=self.values[indices])

    def select_classes(self, classes: NDArray[np.int64]) -> Self:
        """Return some of the tags, in their order."""
        return replace(self, values=self.values[:, classes], names=tuple(self.names[index] for index in classes))

    def one_hot(self, dtype: DTypeLike = np.float32) -> NDArray[Any]:
        """Return (N, T) with a 1 in the column of each tag of an image."""
        return self.values.astype(dtype)

    def nonzero(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the images and the tags of the nonzero entries of `one_hot`: an image once for each of its tags."""
        images, tags = np.nonzero(self.values)
        return images, tags

    def targets(self) -> NDArray[np.int64] | NDArray[np.float32]:
        """Return what a loss compares: (N, T) of 0.0 and 1.0."""
        return self.values.astype(np.float32)

    def labeled(self) -> NDArray[np.int64]:
        """Return the indices of images that have at least one tag."""
        return np.flatnonzero(self.values.any(1))

    def present_classes(self) -> NDArray[np.int64]:
        """Return the tags that occur, sorted."""
        return np.flatnonzero(self.values.any(0))

    def counts(self) -> NDArray[np.int64]:
        """Return the number of images with each tag (T,)."""
        return np.asarray(self.values.sum(0))

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the names of an image's tags."""
        return tuple(self.names[tag] for tag in np.flatnonzero(self.values[index]))

    def relevance(self, database: "Labels") -> NDArray[np.bool_]:
        """Return which items of a database share at least one tag, (N, items)."""
        _check_comparable(self, database)
        return np.asarray(self.values @ database.values.T)  # for booleans, the product is "and", the sum is "or"

    def has_relevant(self, database: "Labels") -> NDArray[np.bool_]:
        """Return which images have at least one relevant item in a database (N,)."""
        _check_comparable(self, database)
        return np.asarray(self.values[:, database.present_classes()].any(1))


Labels = ClassLabels | TagLabels


def _check_comparable(labels: Labels, others: Labels) -> None:
    if labels.kind != others.kind or labels.num_classes != others.num_classes:
        ours, theirs = (f"{each.num_classes} {each.kind}" for each in (labels, others))
        raise InputError(f"Labels of {ours} and of {theirs} cannot be compared.")
