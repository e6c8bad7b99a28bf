"""Grids: the trials of a comparison."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from proxyhash.codes.bits import MAX_BITS
from proxyhash.cutoff import Denominator, check_denominator
from proxyhash.experiments.code_length_settings import settings_at
from proxyhash.experiments.trial import Trial
from proxyhash.methods import get_method, parse_method
from proxyhash.models.storage import MAX_IMAGE_SIZE
from proxyhash.training.config import Finetune, OptimConfig, check_finetune
from proxyhash.utils.config import check_table, from_mapping, read_toml
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import upgrade_recipe
from proxyhash.utils.validation import LARGEST_INT, check_int, shorten

MAX_TRIALS = 10_000  # seeds or folds; more are a mistyped number
DEFAULT = "default"  # in TOML, which has no null


@dataclass(frozen=True)
class Grid:
    """Methods x code lengths x seeds x folds on one data set, by one protocol, on one backbone.

    Parameters
    ----------
    dataset
        A name from `proxyhash datasets`, or a folder.
    methods
        Rows of the comparison: method names, with settings as in `shclm:triplet=1` or `shclm:paper`. The value `tuned`
        stands for one that tuning chooses for each code length.
    bits
        Code lengths.
    seeds
        Number of trainings of each row.
    protocol
        Name of the protocol; None for the usual one of the data set.
    folds
        Folds of a transfer protocol.
    tags
        Keep only this many of the most frequent tags; None for all.
    top, denominator
        Cutoff and denominator of mAP, see `make_split`; None for those of the protocol.
    backbone
        The network that all methods share.
    pretrained
        Start from pretrained weights, if there are any, or from random ones.
    image_size
        Input size in pixels; None for that of the backbone.
    finetune
        Train one network with a head per code length, instead of heads on frozen features: True or "all" for the whole
        network, "last" or a number for its upper stages.
    eval_on
        `test`, or `validation` to choose settings.
    optim
        Changes of the default `OptimConfig`.
    settings, optim_by_method
        Settings of methods, and changes of `optim`, by method or row. A setting may be a table by code length.
    tuned_for, at_edge
        The comparison that these were tuned for, and by method or row which of them are the lowest or the highest that was
        tried, as `proxyhash tune` writes them.

    Raises
    ------
    InputError
        For a value that cannot be run, before anything is.

    Examples
    --------
    >>> grid = Grid("digits", ("lsh", "shclm:triplet=1"), bits=(16, 32))
    >>> [trial.title() for trial in grid.trials()][-1]
    'shclm:triplet=1, 32 bits, seed 0'
    """

    dataset: str
    methods: tuple[str, ...]
    bits: tuple[int, ...] = (16, 32, 64)
    seeds: int = 1
    protocol: str | None = None
    folds: tuple[int, ...] = (0,)
    tags: int | None = None
    top: int | None = None
    denominator: Denominator | None = None
    backbone: str = "efficientnet_lite0"
    pretrained: bool = True
    image_size: int | None = None
    finetune: Finetune = False
    eval_on: Literal["test", "validation"] = "test"
    optim: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    optim_by_method: dict[str, dict[str, Any]] = field(default_factory=dict)
    tuned_for: dict[str, Any] = field(default_factory=dict)
    at_edge: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check all values."""
        self._check_shapes()
        object.__setattr__(self, "finetune", check_finetune(self.finetune))
        for name, least, most, values in (
            ("bits", 1, MAX_BITS, self.bits),
            ("seeds", 1, MAX_TRIALS, (self.seeds,)),
            ("folds", 0, MAX_TRIALS, self.folds),
            ("tags", 1, LARGEST_INT, () if self.tags is None else (self.tags,)),
            ("top", 1, LARGEST_INT, () if self.top is None else (self.top,)),
            ("image_size", 1, MAX_IMAGE_SIZE, () if self.image_size is None else (self.image_size,)),
        ):
            for value in values:
                check_int(name, value, least, most)
        if self.denominator is not None:
            check_denominator(self.denominator)
        if self.eval_on not in ("test", "validation"):
            raise InputError(f"A grid is evaluated on test or validation, not {self.eval_on!r}.")
        self._check_methods()
        list(self.trials())  # each checks its own settings

    def _check_shapes(self) -> None:
        for name in ("dataset", "backbone"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} must be a name, not {shorten(getattr(self, name))}.")
        for name in ("optim", "settings", "optim_by_method", "tuned_for", "at_edge"):
            check_table(name, getattr(self, name))
        for name in ("settings", "optim_by_method", "at_edge"):
            for row, table in getattr(self, name).items():
                check_table(f"{name}.{row}", table)
        for name in ("methods", "bits", "folds"):
            given = getattr(self, name)
            if not isinstance(given, tuple):
                raise InputError(f"{name} must be a list, not {shorten(given)}.")
            if not given or len(set(given)) != len(given):
                raise InputError(f"A grid needs one or more different {name}, not {list(given)}.")

    def _check_methods(self) -> None:
        known = [parse_method(label)[0] for label in self.methods]
        for name in {**self.settings, **self.optim_by_method}:
            if name not in (*known, *self.methods):
                raise InputError(f"The grid has settings for {name}, which is not among its methods.")
        for name in known:
            if self.finetune is not False and not get_method(name).trains:
                raise InputError(f"{get_method(name).title} trains no network and cannot be fine-tuned.")

    def trials(self) -> Iterator[Trial]:
        """Yield all trials; seeds vary slowest, so that an interrupted grid has results of every method."""
        lengths = [self.bits] if self.finetune is not False else [(bits,) for bits in self.bits]
        for seed in range(self.seeds):
            for fold in self.folds:
                for label in self.methods:
                    name, _ = parse_method(label)
                    table = _row_table(self.settings, name, label)
                    for together in lengths:
                        settings = settings_at(label, table, together)
                        yield Trial(label, name, settings, together, seed, fold, self.optim_config(label))

    def optim_config(self, label: str) -> OptimConfig:
        """Return the optimizer settings of a row."""
        changes = {**self.optim, **_row_table(self.optim_by_method, parse_method(label)[0], label)}
        return OptimConfig.of(self.finetune, **changes)

    def edges(self, label: str) -> dict[str, str] | None:
        """Return which settings of a row tuning chose at an edge of what it tried; None for a grid that was not tuned."""
        if not self.tuned_for:
            return None
        name, own = parse_method(label)
        tuned_by_itself = label in self.settings or label in self.optim_by_method
        found = self.at_edge.get(label if tuned_by_itself else name, {})
        return {setting: edge for setting, edge in found.items() if tuned_by_itself or setting not in own}

    @classmethod
    def from_toml(cls, path: Path) -> Self:
        """Read a grid from a recipe; an unknown key is an error."""
        try:
            content = upgrade_recipe(read_toml(path))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not a recipe of a release: {error}.") from error
        return from_mapping(cls, content, owner=str(path))


def _row_table(tables: dict[str, dict[str, Any]], method: str, label: str) -> dict[str, Any]:
    """Return the entries of a row: those of its method, then its own. The word "default" stands for None."""
    entries = {**tables.get(method, {}), **tables.get(label, {})}
    return {name: None if value == DEFAULT else value for name, value in entries.items()}
