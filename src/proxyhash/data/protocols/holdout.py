"""Protocols for any data set: its own parts where it has them, and a share held out of the rest."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.protocols.registry import Wish, protocol
from proxyhash.data.protocols.split import Cut
from proxyhash.data.protocols.validation import share_of


@protocol(
    "holdout", "queries: the data set's own, or a tenth of each class; the rest trains and is searched", kind="classes"
)
@protocol("multi-label", "queries: the data set's own, or a tenth; the rest trains and is searched", kind="tags")
def own_parts(dataset: Dataset, wish: Wish) -> Cut:
    """Use the parts that the data set has; queries are held out if it names none, and what trains is searched if need be."""
    train, query, database = dataset.part("train"), dataset.part("query"), dataset.part("database")
    note = "the queries are the data set's own"
    if not len(query):
        query = share_of(dataset, database if len(database) else dataset.labeled(), wish.seed, "queries")
        note = f"{len(query):,} queries were held out"
    rest = np.setdiff1d(dataset.labeled(), query)
    train, database = np.setdiff1d(train, query), np.setdiff1d(database, query)
    # What is in no named part may train and be searched, unless there is a part for that.
    searched = database if len(database) else (train if len(train) else rest)
    return Cut(train if len(train) else searched, query, searched, note)
