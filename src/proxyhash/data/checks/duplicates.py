"""Duplicate images, and leaks between queries and database or training set."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.catalog import DATASETS
from proxyhash.data.checks.report import Finding, Level
from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols import Split
from proxyhash.data.skipped import MAX_EXAMPLES
from proxyhash.labels import ClassLabels

Groups = NDArray[np.int64]
"""For each image the number of its picture: equal numbers, equal pixels."""


def duplicates(dataset: Dataset, groups: Groups, split: Split | None) -> Iterator[Finding]:
    """Say which pictures occur twice: worst, as a query and in the database or in training."""
    counts = np.bincount(groups)
    repeated = np.flatnonzero(counts[groups] > 1)
    surplus = int((counts[counts > 1] - 1).sum())
    if not surplus:
        yield Finding("ok", "no picture occurs twice")
        return
    yield Finding("note", "pictures that occur again, pixel for pixel", surplus, _pairs(dataset, groups, repeated, repeated))
    disputed = _disputed(dataset, groups, repeated)
    if len(disputed):
        names = _pairs(dataset, groups, disputed, disputed)
        yield Finding("warning", "pictures that occur with different labels", len(np.unique(groups[disputed])), names)
    if split is None:
        return
    for name, others in (("the database", split.database), ("training", split.training_set)):
        leaked = split.query[np.isin(groups[split.query], groups[others])]
        if len(leaked):
            names = _pairs(dataset, groups, leaked, others)
            # Who has a folder can repair it; a published set is what it is, and its numbers are compared as they are.
            level: Level = "warning" if dataset.name in DATASETS else "error"
            yield Finding(level, f"queries whose picture is also in {name} (a leak)", len(leaked), names)


def _pairs(dataset: Dataset, groups: Groups, ones: Indices, others: Indices) -> tuple[str, ...]:
    """Return a few examples of the same picture under two names."""
    examples, named = [], set()
    for one in ones:
        if groups[one] in named:
            continue
        named.add(groups[one])
        twins = others[(groups[others] == groups[one]) & (others != one)]
        twin = dataset.images.key(int(twins[0])) if len(twins) else "itself"
        examples.append(f"{dataset.images.key(int(one))} = {twin}")
        if len(examples) == MAX_EXAMPLES:
            break
    return tuple(examples)


def _disputed(dataset: Dataset, groups: Groups, repeated: Indices) -> Indices:
    if not isinstance(dataset.labels, ClassLabels) or not len(repeated):
        return np.zeros(0, np.int64)
    pairs = np.unique(np.stack([groups[repeated], dataset.labels.values[repeated]], 1), axis=0)
    numbers, labels = np.unique(pairs[:, 0], return_counts=True)
    return repeated[np.isin(groups[repeated], numbers[labels > 1])]
