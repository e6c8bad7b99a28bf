"""Tuning: the search for settings of methods on validation data, with the same number of trials for each.

Each fold of a protocol is tuned by itself: classes that one fold holds out of training are searched by the test of another.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from proxyhash.data import Dataset, default_protocol, get_protocol, load_dataset
from proxyhash.experiments.code_length_settings import ScoresByLength, count_other_values, score_by_length
from proxyhash.experiments.edges import Candidate, best_candidate
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.run import run_grid
from proxyhash.experiments.tuned import TUNED_FILE, TUNED_FOLD_FILE, read_tuned_for, write_tuned
from proxyhash.experiments.tuned_for import check_tuned_for, tuned_for
from proxyhash.methods import get_method, parse_method
from proxyhash.training.trainer import TrainingStoppedError
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

TRIALS = 8  # per row: all of them for a network; other methods have no learning rate and may have fewer settings to try
BASE_LR = 5e-3  # learning rate of the first candidates, unless the grid gives another
LR_STEPS = (0.3, 3.0)  # from the lowest and the highest learning rate that was tried to the next
_NO_EFFECT_ON_TAGS = ("samples_per_class",)  # tagged images come in random batches


def initial_candidates(row: str, *, lr: float = BASE_LR, tags: bool = False) -> list[Candidate]:
    """Return the first candidates of a row: the search space of its method, for a network at one learning rate.

    A row with settings of its own, such as shclm:triplet=1, may have another search space, and so may tagged images.
    """
    name, own = parse_method(row)
    found = get_method(name)
    proposed = found.settings.search_space(tags=tags, fixed=own)
    optim = (("lr", lr),) if found.trains else ()
    left_out = {*own, *(_NO_EFFECT_ON_TAGS if tags else ())}
    free = [{key: value for key, value in each.items() if key not in left_out} for each in proposed]
    labels = dict.fromkeys(":".join([row, *(f"{key}={json.dumps(value)}" for key, value in each.items())]) for each in free)
    if len(labels) > TRIALS:
        raise InputError(f"The search space of {name} has {len(labels)} candidates; tuning has {TRIALS} trials.")
    return [Candidate(label, optim) for label in labels]


def next_lr(scores: Mapping[float, float]) -> float | None:
    """Return the learning rate to try next: beyond the best one if it is at an edge, else between it and a neighbor.

    Parameters
    ----------
    scores
        The mAP of each learning rate that was tried.

    Returns
    -------
    float or None
        The learning rate; None if those around the best one differ from it by less than a rounding.

    Examples
    --------
    >>> next_lr({0.005: 0.6}), next_lr({0.005: 0.6, 0.015: 0.7}), next_lr({0.005: 0.6, 0.015: 0.5})
    (0.015, 0.045, 0.0015)
    >>> next_lr({0.005: 0.6, 0.015: 0.7, 0.045: 0.65})
    0.026
    """
    tried = sorted(scores)
    place = tried.index(max(tried, key=lambda lr: scores[lr]))
    if place == len(tried) - 1:
        return float(f"{tried[-1] * LR_STEPS[1]:.2g}")
    if place == 0:
        return float(f"{tried[0] * LR_STEPS[0]:.2g}")
    neighbors = sorted((tried[place - 1], tried[place + 1]), key=lambda lr: -scores[lr])
    between = (float(f"{math.sqrt(tried[place] * neighbor):.2g}") for neighbor in neighbors)
    return next((lr for lr in between if lr not in scores), None)


def next_candidate(scores: Mapping[Candidate, float]) -> Candidate | None:
    """Return the next candidate of a row whose settings were tried: the best of them at another learning rate.

    None for a method without a network, and if no trial is left. Other values for each code length are trials too.
    """
    best = best_candidate(scores)
    trials = TRIALS - count_other_values(best.label)
    lrs = {dict(each.optim)["lr"]: score for each, score in scores.items() if each.optim and each.label == best.label}
    lr = next_lr(lrs) if lrs and len(scores) < trials else None
    return None if lr is None else Candidate(best.label, (("lr", lr),))


def tune(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    device: str | None = None,
    progress: Progress = no_progress,
    report: Callable[[Record], None] = lambda _: None,
) -> dict[Path, dict[str, Candidate]]:
    """Choose the settings of each row of a grid by its mAP on validation data, with `TRIALS` trials for each.

    First come the settings of the search space, at one learning rate. For a network, the best of them is then tried at other
    rates: beyond the best rate until that is inside of those tried, then closer to it. A training that stops because its
    loss is not finite counts as an mAP of 0.

    A row with settings of its own, such as shclm:triplet=1, is tuned by itself, and so is each fold of a protocol. A setting
    whose value is the word `tuned` is chosen last, for each code length by itself.

    Parameters
    ----------
    grid
        The rows, the data set and the training schedule. Seeds and evaluation split are not used.
    folder
        Where records and tuned settings are written. Rows that an earlier call tuned stay in its files. Stale records,
        such as those of an earlier revision of a method, are computed again.
    data_dir
        The first place to look for a named data set.
    device
        Where networks run, see `find_device`; None for a GPU if there is one.
    progress
        Called with a description and the fraction done.
    report
        Called with each new record.

    Returns
    -------
    dict[Path, dict[str, Candidate]]
        The best candidate of each row, by the file it is written to: one file, or one per fold.

    Raises
    ------
    InputError
        If the folder has settings that were tuned for another comparison.
    """
    dataset = load_dataset(grid.dataset, data_dir=data_dir, progress=progress)
    options: dict[str, Any] = {"data_dir": data_dir, "device": device, "rerun_stale": True}
    run = partial(run_grid, folder=folder, **options, progress=progress, report=report)
    best, paths = {}, {fold: folder / _file_name(grid, dataset, fold) for fold in grid.folds}
    purpose = _purpose(grid, dataset)
    for path in paths.values():
        if path.is_file():
            check_tuned_for(read_tuned_for(path), purpose)
    for fold, path in paths.items():
        one_fold = replace(grid, folds=(fold,))
        scores = _scores(one_fold, run, tags=dataset.kind == "tags")
        best[path] = {row: best_candidate(candidates) for row, candidates in scores.items()}
        write_tuned(scores, path, purpose, {row: _by_length(one_fold, each, run) for row, each in best[path].items()})
    return best


def _file_name(grid: Grid, dataset: Dataset, fold: int) -> str:
    has_folds = get_protocol(grid.protocol or default_protocol(dataset), dataset.name).folds > 1
    return TUNED_FOLD_FILE.format(fold) if has_folds else TUNED_FILE


def _purpose(grid: Grid, dataset: Dataset) -> dict[str, Any]:
    protocol = get_protocol(grid.protocol or default_protocol(dataset), dataset.name)
    given = {"top": grid.top, "denominator": grid.denominator}
    cutoff = {name: getattr(protocol, name) if value is None else value for name, value in given.items()}
    return tuned_for({**asdict(grid), "name": dataset.name}, {"protocol": protocol.name, **cutoff})


def _scores(grid: Grid, run: Callable[[Grid], list[Record]], *, tags: bool) -> dict[str, dict[Candidate, float]]:
    """Return the mAP of every candidate of each row; rows take turns, so that an interrupted search has tried all."""

    def score(candidate: Candidate) -> float:
        try:
            records = run(_candidate_grid(grid, candidate))
        except TrainingStoppedError:
            return 0.0
        return float(mean(record.metrics["map"] for record in records))

    first = {row: initial_candidates(row, lr=grid.optim.get("lr", BASE_LR), tags=tags) for row in grid.methods}
    scores = {row: {each: score(each) for each in candidates} for row, candidates in first.items()}
    while further := {row: found for row in scores if (found := next_candidate(scores[row]))}:
        for row, candidate in further.items():
            scores[row][candidate] = score(candidate)
    return scores


def _by_length(grid: Grid, best: Candidate, run: Callable[[Grid], list[Record]]) -> ScoresByLength:
    """Return the mAP by code length of the settings that a row has as `tuned`, with its best candidate otherwise."""

    def run_row(label: str) -> list[Record]:
        try:
            return run(_candidate_grid(grid, replace(best, label=label)))
        except TrainingStoppedError:
            return []

    return score_by_length(best.label, run_row)


def _candidate_grid(grid: Grid, candidate: Candidate) -> Grid:
    """Return the grid of a candidate: one seed, evaluated on validation data."""
    once = replace(grid, seeds=1, eval_on="validation", optim={**grid.optim, **dict(candidate.optim)})
    return replace(once, methods=(candidate.label,), optim_by_method={}, settings={}, tuned_for={}, at_edge={})
