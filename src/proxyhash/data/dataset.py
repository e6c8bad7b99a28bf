"""A data set in memory: where its pixels are, what is known of each image, and which part it belongs to."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.images import Images, Indices, Some
from proxyhash.data.problems import Problems
from proxyhash.utils.errors import InputError

Part = Literal["train", "query", "database"]
PARTS: tuple[Part, ...] = ("train", "query", "database")
NO_PART = -1
UNKNOWN = -1  # the label of an image without one


@dataclass(frozen=True)
class Dataset:
    """N images with a class each, or with tags, or with neither.

    `labels` (N,) index `names`, with `UNKNOWN` where an image has none; `tags` (N, T) say which of the T `names` it has.
    `parts` (N,) indexes `PARTS`, `NO_PART` where the data set does not say.
    """

    name: str
    images: Images
    names: tuple[str, ...] = ()
    labels: NDArray[np.int64] | None = None
    tags: NDArray[np.bool_] | None = None
    parts: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    problems: Problems = field(default_factory=Problems)
    mirrors: bool = True  # whether a mirrored image means the same

    def __post_init__(self) -> None:
        """Put no image into a part if nothing is said."""
        if len(self.parts) == 0:
            object.__setattr__(self, "parts", np.full(len(self.images), NO_PART, np.int8))

    def __len__(self) -> int:
        """Return N."""
        return len(self.images)

    @property
    def kind(self) -> Literal["classes", "tags", "unlabeled"]:
        """Return what is known of the images."""
        if self.labels is not None:
            return "classes"
        return "tags" if self.tags is not None else "unlabeled"

    def labeled(self) -> Indices:
        """Return the indices of images that have a class or at least one tag."""
        if self.labels is not None:
            return np.flatnonzero(self.labels != UNKNOWN)
        return np.flatnonzero(self.tags.any(1)) if self.tags is not None else np.zeros(0, np.int64)

    def labels_of(self, index: int) -> tuple[str, ...]:
        """Return the names of an image's class or tags."""
        if self.labels is not None:
            label = int(self.labels[index])
            return (self.names[label],) if label != UNKNOWN else ()
        if self.tags is not None:
            return tuple(self.names[tag] for tag in np.flatnonzero(self.tags[index]))
        return ()

    def part(self, name: Part) -> Indices:
        """Return the indices of labeled images that the data set itself puts into a part."""
        labeled = self.labeled()
        chosen: Indices = labeled[self.parts[labeled] == PARTS.index(name)]
        return chosen

    def relevance(self, indices: Indices) -> NDArray[np.int64] | NDArray[np.bool_]:
        """Return what the evaluator compares: classes (n,), or tags (n, T)."""
        if self.labels is not None:
            classes: NDArray[np.int64] = self.labels[indices]
            return classes
        if self.tags is not None:
            return self.tags[indices]
        raise InputError(f"{self.name} has no labels, so nothing says which images are alike.")

    def subset(self, indices: Indices) -> "Dataset":
        """Return a data set of some of the images, with the same names of classes or tags."""
        return replace(
            self,
            images=Some(self.images, indices),
            labels=None if self.labels is None else self.labels[indices],
            tags=None if self.tags is None else self.tags[indices],
            parts=self.parts[indices],
        )

    def with_frequent_tags(self, count: int) -> "Dataset":
        """Return the images that have one of the `count` most frequent tags, and only these tags (NUS-WIDE-21)."""
        if self.tags is None:
            raise InputError(f"{self.name} has no tags to choose the most frequent from.")
        if not 2 <= count <= len(self.names):
            raise InputError(f"{self.name} has {len(self.names)} tags: {count} of them cannot be chosen.")
        frequent = np.argsort(-self.tags.sum(0), kind="stable")[:count]
        frequent.sort()
        kept = np.flatnonzero(self.tags[:, frequent].any(1))
        fewer = replace(self, names=tuple(self.names[tag] for tag in frequent), tags=self.tags[:, frequent])
        return fewer.subset(kept)


def indexed(values: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the distinct names, sorted, and each value's position among them; an empty value is `UNKNOWN`."""
    names = tuple(sorted({value for value in values if value}))
    position = {name: number for number, name in enumerate(names)}
    return names, np.array([position.get(value, UNKNOWN) for value in values], np.int64)
