"""Tuning: the search for settings of methods on validation data, with the same small budget for each.

Each fold of a protocol is tuned by itself: classes that one fold holds out of training are searched by the test of another.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from proxyhash.data import Dataset, default_protocol, get_protocol, load_dataset
from proxyhash.experiments.code_length_settings import ScoresByLength, score_by_length
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.run import run_grid
from proxyhash.experiments.tuned import TUNED_FILE, TUNED_FOLD_FILE, Candidate, best_candidate, write_tuned
from proxyhash.methods import get_method, parse_method
from proxyhash.utils.progress import Progress, no_progress

MAX_CANDIDATES = 6  # per method
BASE_LR = 5e-3  # learning rate of the first candidates, unless the grid gives another
LR_FACTORS = (0.3, 3.0, 6.0)  # learning rates that are tried for the best settings, relative to the first


def initial_candidates(row: str, *, lr: float = BASE_LR, tags: bool = False) -> list[Candidate]:
    """Return the first candidates of a row: the search space of its method, for a network at one learning rate.

    A row with settings of its own, such as shclm:triplet=1, may have another search space, and so may tagged images.
    """
    name, own = parse_method(row)
    found = get_method(name)
    proposed = found.settings.search_space(tags=tags, fixed=own)
    optim = (("lr", lr),) if found.trains else ()
    free = [{key: value for key, value in each.items() if key not in own} for each in proposed]
    labels = [":".join([row, *(f"{key}={json.dumps(value)}" for key, value in each.items())]) for each in free]
    return [Candidate(label, optim) for label in dict.fromkeys(labels)]


def lr_candidates(best: Candidate) -> list[Candidate]:
    """Return the candidates of the second step: for a network, the best settings at other learning rates."""
    return [
        Candidate(best.label, ((name, float(f"{factor * lr:.6g}")),)) for name, lr in best.optim for factor in LR_FACTORS
    ]


def tune(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    device: str | None = None,
    progress: Progress = no_progress,
    report: Callable[[Record], None] = lambda _: None,
) -> dict[Path, dict[str, Candidate]]:
    """Choose the settings of each row of a grid by its mAP on validation data.

    A row with settings of its own, such as shclm:triplet=1, is tuned by itself, and so is each fold of a protocol. A setting
    whose value is the word `tuned` is chosen last, for each code length by itself.

    Parameters
    ----------
    grid
        The rows, the data set and the training schedule. Seeds and evaluation split are not used.
    folder
        Where records and tuned settings are written. Rows that an earlier call tuned stay in its files.
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
    """
    dataset = load_dataset(grid.dataset, data_dir=data_dir, progress=progress)
    run = partial(run_grid, folder=folder, data_dir=data_dir, device=device, progress=progress, report=report)
    best = {}
    for fold in grid.folds:
        path = folder / (TUNED_FOLD_FILE.format(fold) if _has_folds(grid, dataset) else TUNED_FILE)
        one_fold = replace(grid, folds=(fold,))
        scores = _scores(one_fold, run, tags=dataset.kind == "tags")
        best[path] = {row: best_candidate(candidates) for row, candidates in scores.items()}
        write_tuned(scores, path, {row: _by_length(one_fold, each, run) for row, each in best[path].items()})
    return best


def _has_folds(grid: Grid, dataset: Dataset) -> bool:
    return get_protocol(grid.protocol or default_protocol(dataset), dataset.name).folds > 1


def _scores(grid: Grid, run: Callable[[Grid], list[Record]], *, tags: bool) -> dict[str, dict[Candidate, float]]:
    """Return the mAP of every candidate of each row: settings first, then learning rates for the best of them."""

    def score(candidates: list[Candidate]) -> dict[Candidate, float]:
        scores: dict[Candidate, float] = {}
        for optim in dict.fromkeys(each.optim for each in candidates):
            labels = tuple(dict.fromkeys(each.label for each in candidates if each.optim == optim))
            records = run(_candidate_grid(grid, labels, dict(optim)))
            for label in labels:
                scores[Candidate(label, optim)] = mean(r.metrics["map"] for r in records if r.trial["label"] == label)
        return scores

    first = {row: initial_candidates(row, lr=grid.optim.get("lr", BASE_LR), tags=tags) for row in grid.methods}
    scores = score([each for candidates in first.values() for each in candidates])
    best = {row: best_candidate({each: scores[each] for each in candidates}) for row, candidates in first.items()}
    further = {row: lr_candidates(candidate) for row, candidate in best.items()}
    scores |= score([each for candidates in further.values() for each in candidates])
    return {row: {each: scores[each] for each in (*candidates, *further[row])} for row, candidates in first.items()}


def _by_length(grid: Grid, best: Candidate, run: Callable[[Grid], list[Record]]) -> ScoresByLength:
    """Return the mAP by code length of the settings that a row has as `tuned`, with its best candidate otherwise."""
    return score_by_length(best.label, lambda labels: run(_candidate_grid(grid, labels, dict(best.optim))))


def _candidate_grid(grid: Grid, labels: tuple[str, ...], optim: dict[str, Any]) -> Grid:
    """Return the grid of some candidates: one seed, evaluated on validation data."""
    once = replace(grid, seeds=1, eval_on="validation")
    return replace(once, methods=labels, optim={**grid.optim, **optim}, optim_by_method={}, settings={})
