"""Protocols by name, such as `cifar100-paper`, `transfer` or `holdout`. One whose choices change gets a new version."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxyhash.data.catalog import DATASETS
from proxyhash.data.dataset import Dataset
from proxyhash.data.protocols.split import SplitIndices, Split
from proxyhash.data.protocols.validation import split_validation
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int

HoldOut = Literal["images", "classes", "none"]


@dataclass(frozen=True)
class SplitOptions:
    """What a protocol's rule is told."""

    seed: int = 0
    fold: int = 0  # of a transfer protocol, 0 to 3


Rule = Callable[[Dataset, SplitOptions], SplitIndices]


@dataclass(frozen=True)
class Protocol:
    """A named way to cut a data set; `datasets` are the ones that it is for, none meaning any."""

    name: str
    version: int
    summary: str
    rule: Rule
    datasets: tuple[str, ...]
    kind: Literal["classes", "tags"]
    top: int | None  # the cutoff of mAP
    validation: HoldOut  # what is held out of the training set if nobody says
    folds: int = 1


_PROTOCOLS: dict[str, Protocol] = {}


def register_protocol(
    name: str,
    summary: str,
    *,
    version: int = 1,
    datasets: tuple[str, ...] = (),
    kind: Literal["classes", "tags"] = "classes",
    top: int | None = None,
    validation: HoldOut = "images",
    rounds: int = 1,
) -> Callable[[Rule], Rule]:
    """Register a rule under a name."""

    def register(rule: Rule) -> Rule:
        _PROTOCOLS[name] = Protocol(name, version, summary, rule, datasets, kind, top, validation, rounds)
        return rule

    return register


def list_protocols(dataset: str | None = None) -> list[str]:
    """Return the names of all protocols, or of those that fit a named data set (or a folder, by any other name)."""
    if dataset is None:
        return list(_PROTOCOLS)
    return [p.name for p in _PROTOCOLS.values() if _fits(p, dataset)]


def get_protocol(name: str, dataset: str) -> Protocol:
    """Return a protocol by its name, or by its short name for a data set: `paper` is `cifar100-paper` on CIFAR-100."""
    found = _PROTOCOLS.get(f"{dataset}-{name}") or _PROTOCOLS.get(name)
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
) -> Split:
    """Cut a data set by a protocol; without a name, by what it would expect (`default_protocol`).

    `seed` moves what is random in a hold-out; the published protocols do not depend on it, but for their validation set.
    `round` is the one of four of a transfer protocol. `validation` holds out images, whole classes, or none.
    """
    chosen = get_protocol(protocol or default_protocol(dataset), dataset.name)
    wish = SplitOptions(check_int("The seed", seed, 0), check_int("The round", fold, 0))
    _check(dataset, chosen, wish, validation)
    cut = chosen.rule(dataset, wish)
    if not (len(cut.train) and len(cut.query) and len(cut.database)):
        sizes = f"{len(cut.train)} images to train, {len(cut.query)} queries and {len(cut.database)} images to search"
        raise InputError(f"{dataset.name} is too small for the protocol {chosen.name}: it leaves {sizes}.")
    return Split(
        dataset.name,
        chosen.name,
        chosen.version,
        *split_validation(dataset, cut.train, validation or chosen.validation, wish.seed),
        cut.query,
        cut.database,
        dataset.require_labels().subset(cut.train).present_classes(),
        chosen.top,
        wish.seed,
        cut.note,
    )


def _check(dataset: Dataset, chosen: Protocol, wish: SplitOptions, validation: HoldOut | None) -> None:
    if dataset.kind == "unlabeled":
        raise InputError(f"{dataset.name} has no labels: nothing says which images are alike, so it cannot be evaluated.")
    if chosen.kind != dataset.kind:
        raise InputError(f"The protocol {chosen.name} needs {chosen.kind}, and {dataset.name} has {dataset.kind}.")
    if validation not in (None, "images", "classes", "none"):
        raise InputError(f"Validation holds out images, classes or none, not {validation!r}.")
    if wish.fold >= chosen.folds:
        has = f"rounds 0 to {chosen.folds - 1}, not {wish.fold}" if chosen.folds > 1 else "no rounds"
        raise InputError(f"The protocol {chosen.name} has {has}.")


def default_protocol(dataset: Dataset) -> str:
    """Return the name of what a data set would expect: the paper's protocol if there is one, or else a hold-out."""
    if f"{dataset.name}-paper" in _PROTOCOLS:
        return f"{dataset.name}-paper"
    return "multi-label" if dataset.kind == "tags" else "holdout"


def _fits(candidate: Protocol, dataset: str) -> bool:
    if candidate.datasets:
        return dataset in candidate.datasets
    # A general protocol steps back where the data set has one of its own by that name.
    return f"{dataset}-{candidate.name}" not in _PROTOCOLS and (
        dataset not in DATASETS or candidate.kind == DATASETS[dataset].kind
    )
