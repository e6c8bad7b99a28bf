"""Running a grid: what is recorded already is not run again, and what is under way survives a kill."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from proxyhash.data import Dataset, Split, load_dataset, make_split
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.rehearsal import validation_split
from proxyhash.experiments.runner import TrialRunner
from proxyhash.experiments.trial import Trial
from proxyhash.methods import get_method
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress


def run_grid(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    models: Path | None = None,
    progress: Progress = no_progress,
    report: Callable[[Record], None] = lambda _: None,
) -> list[Record]:
    """Run what has no record in `folder` yet, and return the records of the whole grid.

    `models` keeps what was trained, a folder for each result; `report` is told of each new record.
    """
    dataset = load_dataset(grid.dataset, data_dir=data_dir, progress=progress)
    dataset = dataset.with_frequent_tags(grid.tags) if grid.tags else dataset
    trials = list(grid.trials())
    _check(trials, dataset)
    splits = {number: _split(grid, dataset, number) for number in grid.folds}
    runner = TrialRunner(grid, dataset, splits, folder, models, progress)
    records: list[Record] = []
    for number, trial in enumerate(trials):
        progress(f"grid: {number + 1} of {len(trials)}, {trial.title()}", number / len(trials))
        kept = runner.load_cached(trial)
        if kept is None:
            kept = []
            for record in runner.run(trial):
                record.write(folder)
                report(record)
                kept.append(record)
            shutil.rmtree(runner.work_dir(trial), ignore_errors=True)
            with suppress(OSError):  # others may be under way
                runner.work_dir(trial).parent.rmdir()
        records += kept
    return records


def _check(trials: list[Trial], dataset: Dataset) -> None:
    """Refuse what a method cannot learn from, before anything runs."""
    for found in {trial.method: get_method(trial.method) for trial in trials}.values():
        if found.learns_from == "classes" and dataset.kind != "classes":
            raise InputError(f"{found.title} learns from classes, and {dataset.name} has tags.")


def _split(grid: Grid, dataset: Dataset, number: int) -> Split:
    if grid.eval_on == "validation":
        return validation_split(make_split(dataset, grid.protocol, fold=number))
    return make_split(dataset, grid.protocol, fold=number, validation="none")
