"""Protocols for any data set: its own parts where it has them, and a share held out of the rest."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.protocols.registry import SplitOptions, register_protocol
from proxyhash.data.protocols.split import SplitIndices
from proxyhash.data.protocols.validation import sample_holdout


@register_protocol(
    "holdout", "queries: the data set's own, or a tenth of each class; the rest trains and is searched", kind="classes"
)
@register_protocol("multi-label", "queries: the data set's own, or a tenth; the rest trains and is searched", kind="tags")
def own_parts(dataset: Dataset, wish: SplitOptions) -> SplitIndices:
    """Use the parts that the data set has; queries are held out if it names none, and what trains is searched if need be."""
    train, query, database = dataset.split_indices("train"), dataset.split_indices("query"), dataset.split_indices("database")
    note = "the queries are the data set's own"
    if not len(query):
        query = sample_holdout(dataset, database if len(database) else dataset.labeled(), wish.seed, "queries")
        note = f"{len(query):,} queries were held out"
    rest = np.setdiff1d(dataset.labeled(), query)
    train, database = np.setdiff1d(train, query), np.setdiff1d(database, query)
    # What is in no named part may train and be searched, unless there is a part for that.
    searched = database if len(database) else (train if len(train) else rest)
    return SplitIndices(train if len(train) else searched, query, searched, note)
