"""Protocols that papers use, by the data set they are for. Their random choices come from one published seed."""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.holdout import own_parts
from proxyhash.data.protocols.registry import SplitOptions, register_protocol
from proxyhash.data.protocols.sampling import sample_per_class, sample_per_tag
from proxyhash.data.protocols.split import SplitIndices

SEED = 2019  # of all published choices, whatever seed a run has

_OWN = "queries: test set; training and database: train set"
register_protocol("cifar10-paper", _OWN, datasets=("cifar10",))(own_parts)
register_protocol("cifar100-paper", _OWN, datasets=("cifar100",))(own_parts)
register_protocol("ilsvrc2012-paper", _OWN.replace("test", "validation"), datasets=("ilsvrc2012",), top=50_000)(own_parts)


def _cifar10(queries: int, training: int, *, apart: bool = False) -> None:
    """Register the protocol with this many queries in all and training images a class, out of all 60,000."""
    name = f"cifar10-q{queries}-t{training}" + ("-apart" if apart else "")
    searched = "all that is neither" if apart else "all but the queries"
    summary = f"{queries:,} queries, {training:,} training images a class, out of all 60,000; database: {searched}"

    @register_protocol(name, summary, datasets=("cifar10",))
    def cut(data: Dataset, _: SplitOptions) -> SplitIndices:
        classes = data.require_classes().values
        everything = data.labeled()
        query = sample_per_class(everything, classes, queries // 10, SEED, "cifar10", "queries")
        rest = np.setdiff1d(everything, query)
        train = sample_per_class(rest, classes, training, SEED, "cifar10", "training")
        return SplitIndices(train, query, np.setdiff1d(rest, train) if apart else rest)


for _queries in (1_000, 10_000):
    for _training in (500, 5_000):
        _cifar10(_queries, _training)
_cifar10(1_000, 500, apart=True)


@register_protocol(
    "nuswide-paper", "100 queries a tag; all others train and are searched", datasets=("nuswide",), kind="tags", top=50_000
)
def nuswide_paper(data: Dataset, _: SplitOptions) -> SplitIndices:
    """Cut NUS-WIDE-21 as the paper does."""
    query, rest = _queries_and_rest(data)
    return SplitIndices(rest, query, rest)


@register_protocol(
    "nuswide-t10500",
    "100 queries and 500 training images a tag (2,100 and 10,500); database: all but the queries",
    datasets=("nuswide",),
    kind="tags",
    top=5_000,
)
def nuswide_10500(data: Dataset, _: SplitOptions) -> SplitIndices:
    """Cut NUS-WIDE-21 as the pairwise methods do."""
    query, rest = _queries_and_rest(data)
    return SplitIndices(sample_per_tag(rest, data.require_tags().values, 500, SEED, "nuswide", "training"), query, rest)


def _queries_and_rest(data: Dataset) -> tuple[Indices, Indices]:
    query = sample_per_tag(data.labeled(), data.require_tags().values, 100, SEED, "nuswide", "queries")
    return query, np.setdiff1d(data.labeled(), query)
