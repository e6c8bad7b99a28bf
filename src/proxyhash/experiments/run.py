"""Execution of grids: recorded trials are skipped, and an interrupted training resumes from its checkpoint."""

import shutil
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.data import Dataset, Split, load_dataset, make_split
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.runner import TrialRunner
from proxyhash.experiments.trial import Trial
from proxyhash.experiments.tuned_for import check_tuned_for
from proxyhash.methods import get_method
from proxyhash.models.device import find_device
from proxyhash.utils.errors import InputError, ProxyhashWarning
from proxyhash.utils.progress import Progress, no_progress


def run_grid(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    models: Path | None = None,
    device: str | None = None,
    rerun_stale: bool = False,
    progress: Progress = no_progress,
    report: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Run the trials of a grid that have no record yet.

    Parameters
    ----------
    grid
        The trials.
    folder
        The folder of the records. Several processes may share it.
    data_dir
        The first place to look for a named data set.
    models
        Save the trained models in this folder, one folder per record.
    device
        Where networks run, see `find_device`; None for a GPU if there is one.
    rerun_stale
        Run trials again whose records are marked as stale.
    progress
        Called with a description and the fraction done.
    report
        Called with each new record.

    Returns
    -------
    list[Record]
        The records of the whole grid, old and new.

    Raises
    ------
    InputError
        If a method cannot learn from the data set, or settings were tuned for another comparison, before anything runs.

    Examples
    --------
    >>> import tempfile
    >>> from proxyhash.experiments import Grid
    >>> grid = Grid("digits", ("lsh",), bits=(8,), backbone="convnet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (record,) = run_grid(grid, Path(folder))
    >>> 0.1 < record.metrics["map"] < 1
    True
    """
    dataset = load_dataset(grid.dataset, data_dir=data_dir, progress=progress)
    dataset = dataset.with_frequent_tags(grid.tags) if grid.tags else dataset
    trials = list(grid.trials())
    _check(trials, dataset)
    splits = {fold: _split(grid, dataset, fold) for fold in grid.folds}
    runner = TrialRunner(grid, dataset, splits, folder, models, progress, rerun_stale, find_device(device))
    if grid.tuned_for:
        check_tuned_for(grid.tuned_for, runner.purpose())
    records: list[Record] = []
    for number, trial in enumerate(trials):
        progress(f"grid: {number + 1} of {len(trials)}, {trial.title()}", number / len(trials))
        cached = runner.load_cached(trial)
        records += _run(runner, trial, report) if cached is None else cached
    _warn_if_stale(records)
    return records


def validation_split(split: Split) -> Split:
    """Return the split whose queries and database are the validation data of another, to choose settings by."""
    if not len(split.validation):
        raise InputError(f"The protocol {split.protocol} holds nothing out to choose settings by.")
    empty = np.zeros(0, np.int64)
    return replace(
        split,
        query=split.validation,
        database=split.validation_database,
        validation=empty,
        validation_database=empty,
        note=f"evaluated on images held out of the training set. {split.note}".strip(),
    )


def _run(runner: TrialRunner, trial: Trial, report: Callable[[Record], None]) -> list[Record]:
    """Run a trial, write its records, and remove its checkpoints."""
    records = []
    for record in runner.run(trial):
        runner.store.append(record)
        report(record)
        records.append(record)
    shutil.rmtree(runner.work_dir(trial), ignore_errors=True)
    with suppress(OSError):  # other processes may have trials in progress
        runner.work_dir(trial).parent.rmdir()
    return records


def _warn_if_stale(records: list[Record]) -> None:
    stale = [record for record in records if record.stale]
    if stale:
        reason = f"{len(stale)} of {len(records)} records are stale ({stale[0].stale})"
        warnings.warn(f"{reason}; --rerun-stale computes them again.", ProxyhashWarning, 3)


def _check(trials: list[Trial], dataset: Dataset) -> None:
    """Refuse a method that cannot learn from the data set."""
    for found in {trial.method: get_method(trial.method) for trial in trials}.values():
        if found.learns_from == "classes" and dataset.kind != "classes":
            raise InputError(f"{found.title} learns from classes, and {dataset.name} has tags.")


def _split(grid: Grid, dataset: Dataset, fold: int) -> Split:
    cutoff: dict[str, Any] = {"top": grid.top, "denominator": grid.denominator}
    if grid.eval_on == "validation":
        return validation_split(make_split(dataset, grid.protocol, fold=fold, **cutoff))
    return make_split(dataset, grid.protocol, fold=fold, validation="none", **cutoff)
