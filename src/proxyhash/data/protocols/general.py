"""Protocols for any data set: hold-outs and unseen classes."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.registry import SplitOptions, register_protocol
from proxyhash.data.protocols.sampling import PUBLISHED_SEED
from proxyhash.data.protocols.split import SplitIndices
from proxyhash.data.protocols.validation import sample_holdout
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import permutation

FOLDS = 4
_TRANSFER = "trained on 75 % of the classes; database and queries: train and test images of the unseen 25 %; four folds"


@register_protocol("holdout", "queries: the data set's own, or a tenth of each class; the rest trains and is searched")
@register_protocol("multi-label", "queries: the data set's own, or a tenth; the rest trains and is searched", kind="tags")
def own_splits(dataset: Dataset, options: SplitOptions) -> SplitIndices:
    """Use the splits of the data set. Without queries some are held out; without a database the training set is searched."""
    train, query, database = (dataset.split_indices(name) for name in ("train", "query", "database"))
    note = "the queries are the data set's own"
    if not len(query):
        query = sample_holdout(dataset, database if len(database) else dataset.labeled(), options.seed, "queries")
        note = f"{len(query):,} queries were held out"
    rest = np.setdiff1d(dataset.labeled(), query)
    train, database = np.setdiff1d(train, query), np.setdiff1d(database, query)
    # Images of no split train and are searched, unless there is a split for that.
    searched = database if len(database) else (train if len(train) else rest)
    return SplitIndices(train if len(train) else searched, query, searched, note)


@register_protocol("transfer", _TRANSFER, validation="classes", folds=FOLDS)
@register_protocol(
    "ilsvrc2012-transfer",
    _TRANSFER,
    datasets=("ilsvrc2012",),
    validation="classes",
    top=50_000,
    denominator="retrieved",  # as in ilsvrc2012-paper
    folds=FOLDS,
)
def transfer(dataset: Dataset, options: SplitOptions) -> SplitIndices:
    """Train without the classes of one fold, and search among them; without queries of its own, a share is held out."""
    labels = dataset.require_classes()
    if labels.num_classes < 2 * FOLDS:
        raise InputError(
            f"{dataset.name} has {labels.num_classes} classes; transfer needs at least {2 * FOLDS}, two in each fold."
        )
    unseen = class_folds(labels.num_classes)[options.fold]
    is_unseen = np.isin(labels.values, unseen)
    train, query, database = (dataset.split_indices(name) for name in ("train", "query", "database"))
    rest = np.setdiff1d(dataset.labeled(), query)
    train = train if len(train) else rest
    searched = database if len(database) else train
    if not len(query):
        query = sample_holdout(dataset, searched[is_unseen[searched]], options.seed, "unseen queries")
    query, searched = query[is_unseen[query]], np.setdiff1d(searched[is_unseen[searched]], query)
    note = f"fold {options.fold + 1} of {FOLDS}, {len(unseen)} unseen classes"
    return SplitIndices(train[~is_unseen[train]], query, searched, note)


def class_folds(num_classes: int) -> list[Indices]:
    """Return four disjoint sets of classes, each sorted, from the published seed."""
    order = permutation(num_classes, PUBLISHED_SEED, "transfer", "quarters")
    return [np.sort(fold) for fold in np.array_split(order, FOLDS)]
