"""Validation images held out of the training set: never a query, never an image that only the final database has."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.sampling import sample_fraction, sample_stratified
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

HOLDOUT_FRACTION = 0.1  # of each class, held out as queries or for validation
MAX_HOLDOUT = 10_000  # images that a hold-out takes at most: more would only cost time
HOLDOUT_CLASSES = 0.2  # of the classes that training may see, held out to tune for unseen ones
HOLDOUT_QUERIES = 0.2  # of the images of these classes

NOTHING = np.zeros(0, np.int64)


def split_validation(dataset: Dataset, train: Indices, what: str, seed: int) -> tuple[Indices, Indices, Indices]:
    """Return what is left to train, the validation queries, and what these are searched in."""
    if what == "none":
        return train, NOTHING, NOTHING
    if what == "classes":
        return _classes(dataset, train, seed)
    held = sample_holdout(dataset, train, seed, "validation")
    left = np.setdiff1d(train, held)
    return left, held, left


def sample_holdout(dataset: Dataset, pool: Indices, seed: int, purpose: str) -> Indices:
    """Return a share of the pool: of each class (a class of one image keeps it), or of all tagged images."""
    share = min(HOLDOUT_FRACTION, MAX_HOLDOUT / max(1, len(pool)))
    match dataset.require_labels():
        case ClassLabels(values=classes):
            return sample_stratified(pool, classes, share, seed, purpose)
        case TagLabels():
            return sample_fraction(pool, share, seed, purpose)


def _classes(dataset: Dataset, train: Indices, seed: int) -> tuple[Indices, Indices, Indices]:
    """Hold out whole classes, so that what is tuned is how well unseen ones are searched."""
    if not isinstance(dataset.labels, ClassLabels):
        raise InputError(f"{dataset.name} has tags: hold out images for validation, not classes.")
    values = dataset.labels.values
    classes = np.unique(values[train])
    if len(classes) < 4:
        raise InputError(f"{dataset.name} trains on {len(classes)} classes: too few to hold some out for validation.")
    count = max(2, round(len(classes) * HOLDOUT_CLASSES))
    unseen = classes[permutation(len(classes), seed, "validation classes")[:count]]
    pool = train[np.isin(values[train], unseen)]
    queries = sample_stratified(pool, values, HOLDOUT_QUERIES, seed, "validation queries")
    return np.setdiff1d(train, pool), queries, np.setdiff1d(pool, queries)
