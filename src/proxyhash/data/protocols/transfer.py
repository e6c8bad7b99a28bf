"""Unseen classes: four quarters of the classes, each in turn kept from training and then searched."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.published import SEED
from proxyhash.data.protocols.registry import SplitOptions, register_protocol
from proxyhash.data.protocols.split import SplitIndices
from proxyhash.data.protocols.validation import sample_holdout
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

_SUMMARY = "trained on 75 % of the classes; database and queries: train and test images of the unseen 25 %; four rounds"


@register_protocol("transfer", _SUMMARY, validation="classes", rounds=4)
@register_protocol("ilsvrc2012-transfer", _SUMMARY, datasets=("ilsvrc2012",), validation="classes", top=50_000, rounds=4)
def transfer(data: Dataset, wish: SplitOptions) -> SplitIndices:
    """Cut round `wish.round`; without parts of its own, the data set's queries are a share of the unseen classes."""
    labels = data.require_classes()
    if labels.num_classes < 8:
        raise InputError(f"{data.name} has {labels.num_classes} classes; transfer needs at least 8, two in each quarter.")
    unseen = class_folds(labels.num_classes)[wish.fold]
    hidden = np.isin(labels.values, unseen)
    train, query, database = data.split_indices("train"), data.split_indices("query"), data.split_indices("database")
    rest = np.setdiff1d(data.labeled(), query)
    train = train if len(train) else rest
    searched = database if len(database) else train
    if not len(query):
        query = sample_holdout(data, searched[hidden[searched]], wish.seed, "unseen queries")
    query, searched = query[hidden[query]], np.setdiff1d(searched[hidden[searched]], query)
    return SplitIndices(train[~hidden[train]], query, searched, f"round {wish.fold + 1} of 4, {len(unseen)} unseen classes")


def class_folds(classes: int) -> list[Indices]:
    """Return four disjoint sets of classes, sorted, from the published seed."""
    return [np.sort(part) for part in np.array_split(permutation(classes, SEED, "transfer", "quarters"), 4)]
