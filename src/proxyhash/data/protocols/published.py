"""Protocols of papers, by data set. Their random choices come from one published seed.

Cutoffs below the number of relevant items need a denominator. The paper defines AP by the change in recall, and does not say
recall of which items. Evaluators that are public divide by the relevant items inside the cutoff (`retrieved`):

- NUS-WIDE at 5,000 and 50,000: kunhe/TALR `+eval/AP.m`, called by `+demo/AP.m`; fcakir/deep-mihash `evaluate_AP.m`. Numbers
  of both are in the paper's tables. Over `relevant`, a query with R > 50,000 relevant items would score 50,000 / R at most.
- NUS-WIDE at 5,000 and ImageNet-100 at 1,000: thuml/HashNet `pytorch/src/test.py`, yuanli2333/Hadamard-Matrix-for-hashing
  `test.py`, swuxyj/DeepHash-pytorch `utils/tools.py`.
- ILSVRC-2012 at 50,000: no evaluator is public. The paper has one definition for both data sets, so this is `retrieved` too.

mAP by the other denominators is recorded beside it.
"""

import numpy as np

from proxyhash.data.dataset import Dataset
from proxyhash.data.images import Indices
from proxyhash.data.protocols.general import own_splits
from proxyhash.data.protocols.registry import SplitOptions, register_protocol
from proxyhash.data.protocols.sampling import PUBLISHED_SEED, sample_per_class, sample_per_tag
from proxyhash.data.protocols.split import SplitIndices

_OWN = "queries: test set; training and database: train set"
register_protocol("cifar10-paper", _OWN, datasets=("cifar10",))(own_splits)
register_protocol("cifar100-paper", _OWN, datasets=("cifar100",))(own_splits)
register_protocol(
    "ilsvrc2012-paper",
    _OWN.replace("test", "validation"),
    datasets=("ilsvrc2012",),
    top=50_000,
    denominator="retrieved",
)(own_splits)


def _register_cifar10(queries: int, training: int, *, disjoint: bool = False) -> None:
    """Register the protocol with this many queries in all and training images per class, out of all 60,000."""
    name = f"cifar10-q{queries}-t{training}" + ("-apart" if disjoint else "")
    searched = "all that is neither" if disjoint else "all but the queries"
    summary = f"{queries:,} queries, {training:,} training images a class, out of all 60,000; database: {searched}"

    @register_protocol(name, summary, datasets=("cifar10",))
    def split(dataset: Dataset, _: SplitOptions) -> SplitIndices:
        classes, everything = dataset.require_classes().values, dataset.labeled()
        query = sample_per_class(everything, classes, queries // 10, PUBLISHED_SEED, "cifar10", "queries")
        rest = np.setdiff1d(everything, query)
        train = sample_per_class(rest, classes, training, PUBLISHED_SEED, "cifar10", "training")
        return SplitIndices(train, query, np.setdiff1d(rest, train) if disjoint else rest)


for _queries in (1_000, 10_000):
    for _training in (500, 5_000):
        _register_cifar10(_queries, _training)
_register_cifar10(1_000, 500, disjoint=True)


@register_protocol(
    "nuswide-paper",
    "100 queries a tag; all others train and are searched",
    datasets=("nuswide",),
    kind="tags",
    top=50_000,
    denominator="retrieved",
)
def nuswide_paper(dataset: Dataset, _: SplitOptions) -> SplitIndices:
    """Split NUS-WIDE-21 as the paper does."""
    query, rest = _queries_and_rest(dataset)
    return SplitIndices(rest, query, rest)


@register_protocol(
    "nuswide-t10500",
    "100 queries and 500 training images a tag (2,100 and 10,500); database: all but the queries",
    datasets=("nuswide",),
    kind="tags",
    top=5_000,
    denominator="retrieved",
)
def nuswide_10500(dataset: Dataset, _: SplitOptions) -> SplitIndices:
    """Split NUS-WIDE-21 as the pairwise methods do."""
    query, rest = _queries_and_rest(dataset)
    train = sample_per_tag(rest, dataset.require_tags().values, 500, PUBLISHED_SEED, "nuswide", "training")
    return SplitIndices(train, query, rest)


def _queries_and_rest(dataset: Dataset) -> tuple[Indices, Indices]:
    tags = dataset.require_tags().values
    query = sample_per_tag(dataset.labeled(), tags, 100, PUBLISHED_SEED, "nuswide", "queries")
    return query, np.setdiff1d(dataset.labeled(), query)
