"""Choosing settings: every method gets the same small number of tries, judged on images of the training set.

Rounds of a protocol are tuned one by one: classes held out of one round's training set are searched by another's test.
"""

import json
import re
from collections.abc import Callable, Container
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from proxyhash.data import Dataset, default_protocol, get_protocol, load_dataset
from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.run import run_grid
from proxyhash.experiments.trial import parse_method
from proxyhash.methods import get_method
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

MAX_CANDIDATES = 6  # tries of a method
BASE_LR = 5e-3  # of the head, at which settings are compared, if the grid's plan has no other
LR_FACTORS = (0.3, 3.0, 6.0)  # times that: what suits one loss is too fast or too slow for another; for the best settings
TUNED_FILE, TUNED_FOLD_FILE = "chosen.toml", "chosen-round-{}.toml"
_ROW = re.compile(
    r'^\[\w+\."(.+)"\]$|\A# ([^:,\n]+): mAP [^\n]*\Z', re.MULTILINE
)  # whose settings follow, or had none to choose


@dataclass(frozen=True)
class Candidate:
    """Settings of a method as typed, and the changes of the plan that go with them."""

    label: str
    optim: tuple[tuple[str, Any], ...] = ()


def initial_candidates(row: str, *, rate: float = BASE_LR, tags: bool = False) -> list[Candidate]:
    """Return what is tried first for a method, or a row of one: what its settings propose, for a network at one rate.

    A row that has settings of its own, such as shclm:triplet=1, may have proposals of its own, and so may tagged images.
    """
    name, own = parse_method(row)
    found = get_method(name)
    proposed = found.settings.search_space(tags=tags, fixed=own)
    plan = (("rate", rate),) if found.trains else ()
    free = [{key: value for key, value in each.items() if key not in own} for each in proposed]
    labels = [":".join([row, *(f"{key}={json.dumps(value)}" for key, value in each.items())]) for each in free]
    return [Candidate(label, plan) for label in dict.fromkeys(labels)]


def lr_candidates(best: Candidate) -> list[Candidate]:
    """Return what is tried after that: for a network, the best settings at the other rates."""
    return [
        Candidate(best.label, ((name, float(f"{times * rate:.6g}")),)) for name, rate in best.optim for times in LR_FACTORS
    ]


def tuned_grids(grid: Grid, path: Path | None) -> list[Grid]:
    """Return a grid with what `tune` chose, by its folder or a file of it; if rounds chose for themselves, one grid each."""
    if path is None:
        return [grid]
    if not path.is_dir():
        return [grid.with_tuned(path)]
    of_rounds, of_all = list(path.glob(TUNED_FOLD_FILE.format("*"))), path / TUNED_FILE
    if of_rounds and of_all.is_file():
        raise InputError(f"{path} has choices for rounds and for a protocol without them; name the file that is meant.")
    if not of_rounds:
        return [grid.with_tuned(of_all)]
    rounds = [replace(grid, folds=(number,)) for number in grid.folds]
    return [each.with_tuned(path / TUNED_FOLD_FILE.format(*each.folds)) for each in rounds]


def tune(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress = no_progress,
    report: Callable[[Record], None] = lambda _: None,
) -> dict[Path, dict[str, Candidate]]:
    """Return the best try of each row of a grid, by the file of `folder` that it is written to, for `tuned_grids`.

    What a file says of other rows stays. A row with settings of its own, such as shclm:triplet=1, is tuned by itself, and
    so is each round of a protocol that has several.
    """
    dataset = load_dataset(grid.dataset, data_dir=data_dir, progress=progress)
    run = partial(run_grid, folder=folder, data_dir=data_dir, progress=progress, report=report)
    found = {}
    for number in grid.folds:
        path = folder / (TUNED_FOLD_FILE.format(number) if _has_folds(grid, dataset) else TUNED_FILE)
        scores = _scores(replace(grid, folds=(number,)), run, tags=dataset.kind == "tags")
        found[path] = {row: _best(tries) for row, tries in scores.items()}
        _write(found[path], scores, path)
    return found


def _has_folds(grid: Grid, dataset: Dataset) -> bool:
    return get_protocol(grid.protocol or default_protocol(dataset), dataset.name).folds > 1


def _scores(grid: Grid, run: Callable[[Grid], list[Record]], *, tags: bool) -> dict[str, dict[Candidate, float]]:
    """Return the mAP of every try of each row: settings first, then the rates around the best of them."""

    def scored(tries: list[Candidate]) -> dict[Candidate, float]:
        scores: dict[Candidate, float] = {}
        for plan in dict.fromkeys(each.optim for each in tries):
            labels = tuple(dict.fromkeys(each.label for each in tries if each.optim == plan))
            records = run(_candidate_grid(grid, labels, dict(plan)))
            for label in labels:
                scores[Candidate(label, plan)] = mean(r.metrics["map"] for r in records if r.trial["label"] == label)
        return scores

    first = {row: initial_candidates(row, rate=grid.optim.get("rate", BASE_LR), tags=tags) for row in grid.methods}
    scores = scored([each for tries in first.values() for each in tries])
    further = {row: lr_candidates(_best({each: scores[each] for each in tries})) for row, tries in first.items()}
    scores |= scored([each for tries in further.values() for each in tries])
    return {row: {each: scores[each] for each in (*tries, *further[row])} for row, tries in first.items()}


def _best(scores: dict[Candidate, float]) -> Candidate:
    return max(scores, key=lambda each: scores[each])


def _candidate_grid(grid: Grid, labels: tuple[str, ...], plan: dict[str, Any]) -> Grid:
    """Return the grid of these tries: one seed, judged on what is held out of the training set."""
    once = replace(grid, seeds=1, eval_on="validation")
    return replace(once, methods=labels, optim={**grid.optim, **plan}, optim_by_method={}, settings={})


def _write(best: dict[str, Candidate], scores: dict[str, dict[Candidate, float]], path: Path) -> None:
    """Write settings and plans as a recipe has them, with the mAP of every try as a comment."""
    lines = [f"# Chosen on what is held out of the training set, out of at most {MAX_CANDIDATES} tries of each method."]
    for name, chosen in best.items():
        lines += ["", *(f"# {_describe(each)}: mAP {score:.4f}" for each, score in scores[name].items())]
        settings = _settings(name, chosen)
        for table, content in (("settings", settings), ("plans", dict(chosen.optim))):
            if content:
                lines += [f'[{table}."{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in content.items())]
    for block in _other_rows(path, best):
        lines += ["", block]
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _settings(row: str, chosen: Candidate) -> dict[str, Any]:
    """Return the settings to write; for a row with settings of its own all of them, lest its method's choices be added."""
    method, settings = parse_method(chosen.label)
    if row == method:
        return settings
    everything = asdict(get_method(method).settings(**settings))
    return {key: value for key, value in everything.items() if value is not None}  # TOML has no word for it


def _other_rows(path: Path, names: Container[str]) -> list[str]:
    """Return what a file says of other methods, with the scores that stand above each."""
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")[1:] if path.is_file() else []
    return [block for block in blocks if (found := _ROW.search(block)) and (found[1] or found[2]) not in names]


def _describe(each: Candidate) -> str:
    return ", ".join([each.label, *(f"{key} {value:g}" for key, value in each.optim)])
