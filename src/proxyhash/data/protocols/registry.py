"""Protocols by name, and the splits that they make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxyhash.cutoff import Denominator, check_cutoff, check_denominator, map_name
from proxyhash.data.catalog import DATASETS
from proxyhash.data.dataset import Dataset
from proxyhash.data.protocols.split import Split, SplitIndices
from proxyhash.data.protocols.validation import split_validation
from proxyhash.utils.errors import InputError
from proxyhash.utils.registry import Registry
from proxyhash.utils.validation import check_int

HoldOut = Literal["images", "classes", "none"]


@dataclass(frozen=True)
class SplitOptions:
    """Options of a protocol: the seed of hold-outs, and the fold of a transfer protocol (0 to 3)."""

    seed: int = 0
    fold: int = 0


SplitRule = Callable[[Dataset, SplitOptions], SplitIndices]


@dataclass(frozen=True)
class Protocol:
    """A named way to split a data set, and the mAP that scores it. A protocol that chooses other images gets a new version.

    Parameters
    ----------
    name, version, summary
        What it is called, and what it does in words.
    rule
        The function that makes the split.
    datasets
        The names of the data sets that it is for, empty for any.
    kind
        The kind of labels that it needs.
    top
        The cutoff of mAP, None for the whole database.
    validation
        What is held out of the training set by default.
    folds
        The number of folds.
    denominator
        The divisor of the sum of precisions, see `proxyhash.cutoff`. Only a cutoff makes a difference.
    """

    name: str
    version: int
    summary: str
    rule: SplitRule
    datasets: tuple[str, ...]
    kind: Literal["classes", "tags"]
    top: int | None
    validation: HoldOut
    folds: int = 1
    denominator: Denominator = "relevant"

    @property
    def map_name(self) -> str:
        """Return the name of its mAP, such as `mAP@5000[retrieved]`."""
        return map_name(self.top, self.denominator)


PROTOCOLS: Registry[Protocol] = Registry("protocol")


def register_protocol(
    name: str,
    summary: str,
    *,
    version: int = 1,
    datasets: tuple[str, ...] = (),
    kind: Literal["classes", "tags"] = "classes",
    top: int | None = None,
    validation: HoldOut = "images",
    folds: int = 1,
    denominator: Denominator = "relevant",
) -> Callable[[SplitRule], SplitRule]:
    """Return a decorator that registers a rule as a `Protocol`."""

    check_cutoff(top, denominator)

    def register(rule: SplitRule) -> SplitRule:
        PROTOCOLS.add(name, Protocol(name, version, summary, rule, datasets, kind, top, validation, folds, denominator))
        return rule

    return register


def list_protocols(dataset: str | None = None) -> list[str]:
    """Return the names of all protocols, or of those that fit a data set.

    Parameters
    ----------
    dataset
        The name of a data set; any other name stands for a folder.

    Examples
    --------
    >>> list_protocols("cifar100")
    ['holdout', 'transfer', 'cifar100-paper']
    """
    return [protocol.name for protocol in PROTOCOLS.values() if dataset is None or _fits(protocol, dataset)]


def get_protocol(name: str, dataset: str) -> Protocol:
    """Return a protocol by its name, or by its short name for a data set.

    Raises
    ------
    InputError
        If there is no such protocol for the data set.

    Examples
    --------
    >>> get_protocol("paper", "cifar100").name
    'cifar100-paper'
    """
    found = PROTOCOLS.get(f"{dataset}-{name}") or PROTOCOLS.get(name)
    if found is None or (found.datasets and dataset not in found.datasets):
        fitting = ", ".join(list_protocols(dataset))
        raise InputError(f"There is no protocol {name!r} for {dataset}; choose from {fitting}.")
    return found


def make_split(
    dataset: Dataset,
    protocol: str | None = None,
    *,
    seed: int = 0,
    fold: int = 0,
    validation: HoldOut | None = None,
    top: int | None = None,
    denominator: str | None = None,
) -> Split:
    """Split a data set into training, validation, queries and database.

    Parameters
    ----------
    dataset
        The data set.
    protocol
        The name of a protocol; None for `default_protocol(dataset)`.
    seed
        The seed of hold-outs. In published protocols only the validation set depends on it.
    fold
        The fold of a transfer protocol, 0 to 3.
    validation
        Hold out "images", "classes" or "none" of the training set; None for the protocol's default.
    top
        The cutoff of mAP; None for that of the protocol.
    denominator
        The divisor of the sum of precisions: "relevant", "capped" or "retrieved"; None for that of the protocol.

    Raises
    ------
    InputError
        If the protocol does not fit the data set, if the data set is too small for it, or if a denominator has no cutoff.

    Examples
    --------
    >>> from proxyhash.data import load_dataset
    >>> make_split(load_dataset("digits"))
    Split(holdout@1 of digits: 1,458 train, 160 validation, 1,458 validation database, 179 query, 1,618 database; mAP)
    """
    chosen = get_protocol(protocol or default_protocol(dataset), dataset.name)
    options = SplitOptions(check_int("The seed", seed, 0), check_int("The fold", fold, 0))
    _check(dataset, chosen, options, validation)
    top = chosen.top if top is None else top
    denominator = check_denominator(chosen.denominator if denominator is None else denominator)
    check_cutoff(top, denominator)
    indices = chosen.rule(dataset, options)
    if not (len(indices.train) and len(indices.query) and len(indices.database)):
        counts = (len(indices.train), len(indices.query), len(indices.database))
        sizes = "{} images to train, {} queries and {} images to search".format(*counts)
        raise InputError(f"{dataset.name} is too small for the protocol {chosen.name}: it leaves {sizes}.")
    return Split(
        dataset.name,
        chosen.name,
        chosen.version,
        *split_validation(dataset, indices.train, validation or chosen.validation, options.seed),
        indices.query,
        indices.database,
        dataset.require_labels().subset(indices.train).present_classes(),
        top,
        options.seed,
        indices.note,
        denominator,
    )


def _check(dataset: Dataset, chosen: Protocol, options: SplitOptions, validation: HoldOut | None) -> None:
    if dataset.kind == "unlabeled":
        raise InputError(f"{dataset.name} has no labels: nothing says which images are alike, so it cannot be evaluated.")
    if chosen.kind != dataset.kind:
        raise InputError(f"The protocol {chosen.name} needs {chosen.kind}, and {dataset.name} has {dataset.kind}.")
    if validation not in (None, "images", "classes", "none"):
        raise InputError(f"Validation holds out images, classes or none, not {validation!r}.")
    if options.fold >= chosen.folds:
        has = f"folds 0 to {chosen.folds - 1}, not {options.fold}" if chosen.folds > 1 else "no folds"
        raise InputError(f"The protocol {chosen.name} has {has}.")


def default_protocol(dataset: Dataset) -> str:
    """Return the name of the default protocol of a data set: the paper's if there is one, or else a hold-out.

    Examples
    --------
    >>> from proxyhash.data import load_dataset
    >>> default_protocol(load_dataset("digits"))
    'holdout'
    """
    return default_protocol_of(dataset.name, has_tags=dataset.kind == "tags")


def default_protocol_of(dataset: str, *, has_tags: bool) -> str:
    """Return the name of the default protocol of a data set by its name.

    Examples
    --------
    >>> default_protocol_of("cifar100", has_tags=False)
    'cifar100-paper'
    """
    if f"{dataset}-paper" in PROTOCOLS:
        return f"{dataset}-paper"
    return "multi-label" if has_tags else "holdout"


def _fits(protocol: Protocol, dataset: str) -> bool:
    if protocol.datasets:
        return dataset in protocol.datasets
    # A general protocol is not listed where the data set has one of its own by that name.
    return f"{dataset}-{protocol.name}" not in PROTOCOLS and (
        dataset not in DATASETS or protocol.kind == DATASETS[dataset].kind
    )
