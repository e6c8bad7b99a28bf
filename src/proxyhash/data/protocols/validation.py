"""Validation sets, held out of the training set."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.sampling import sample_fraction, sample_stratified
from proxyhash.labels import ClassLabels, TagLabels
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

HOLDOUT_FRACTION = 0.1  # of each class, held out as queries or for validation
MAX_HOLDOUT = 10_000  # images; more would cost time without adding precision
HOLDOUT_CLASSES = 0.2  # fraction of the training classes, for validation on unseen classes
HOLDOUT_QUERIES = 0.2  # fraction of their images

NOTHING = np.zeros(0, np.int64)


def split_validation(dataset: Dataset, train: Indices, what: str, seed: int) -> tuple[Indices, Indices, Indices]:
    """Return the remaining training set, the validation queries, and the validation database."""
    if what == "none":
        return train, NOTHING, NOTHING
    if what == "classes":
        return _classes(dataset, train, seed)
    held = sample_holdout(dataset, train, seed, "validation")
    left = np.setdiff1d(train, held)
    return left, held, left


def sample_holdout(dataset: Dataset, pool: Indices, seed: int, purpose: str) -> Indices:
    """Return a fraction of the pool: of each class (a class of one image keeps it), or of all tagged images."""
    share = min(HOLDOUT_FRACTION, MAX_HOLDOUT / max(1, len(pool)))
    match dataset.require_labels():
        case ClassLabels(values=classes):
            return sample_stratified(pool, classes, share, seed, purpose)
        case TagLabels():
            return sample_fraction(pool, share, seed, purpose)


def _classes(dataset: Dataset, train: Indices, seed: int) -> tuple[Indices, Indices, Indices]:
    """Hold out whole classes, so that settings are tuned for unseen classes."""
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
