"""Choosing settings: every method gets the same small number of tries, judged on images of the training set."""

import json
import re
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from proxyhash.experiments.grid import Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.run import run_grid
from proxyhash.experiments.trial import parse_method
from proxyhash.methods import find_method
from proxyhash.support.files import written_whole
from proxyhash.support.progress import Progress, silent

BUDGET = 6  # tries of a method
RATES = (5e-3, 1.5e-3)  # of the head: what suits one loss is too fast or too slow for another
CHOSEN = "chosen.toml"
_METHOD = re.compile(r'^\[\w+\."(.+)"\]$', re.MULTILINE)  # whose settings or plan follow


@dataclass(frozen=True)
class Try:
    """Settings of a method as typed, and the changes of the plan that go with them."""

    label: str
    plan: tuple[tuple[str, Any], ...] = ()


def tries(name: str) -> list[Try]:
    """Return what is tried for a method: what its settings propose (`TRIES`), for a network at each of the rates."""
    found = find_method(name)
    proposed: tuple[dict[str, Any], ...] = getattr(found.settings, "TRIES", ({},))
    labels = [":".join([name, *(f"{key}={json.dumps(value)}" for key, value in each.items())]) for each in proposed]
    if not found.trains:
        return [Try(label) for label in labels]
    return [Try(label, (("rate", rate),)) for rate in RATES for label in labels]


def tune(
    grid: Grid,
    folder: Path,
    *,
    data_dir: Path | None = None,
    progress: Progress = silent,
    report: Callable[[Record], None] = lambda _: None,
) -> dict[str, Try]:
    """Return the best try of each method of a grid, and write them to `folder` for other grids to start from.

    What was chosen there for other methods stays.
    """
    names = list(dict.fromkeys(parse_method(label)[0] for label in grid.methods))
    scores: dict[Try, float] = {}
    for plan in dict.fromkeys(each.plan for name in names for each in tries(name)):
        labels = tuple(each.label for name in names for each in tries(name) if each.plan == plan)
        rehearsed = replace(
            grid, methods=labels, plan={**grid.plan, **dict(plan)}, plans={}, settings={}, seeds=1, judged_on="validation"
        )
        records = run_grid(rehearsed, folder, data_dir=data_dir, progress=progress, report=report)
        for label in labels:
            scores[Try(label, plan)] = mean(r.metrics["map"] for r in records if r.trial["label"] == label)
    best = {name: max(tries(name), key=lambda each: scores[each]) for name in names}
    _write(best, scores, folder / CHOSEN)
    return best


def _write(best: dict[str, Try], scores: dict[Try, float], path: Path) -> None:
    """Write settings and plans as a recipe has them, with the mAP of every try as a comment."""
    lines = [f"# Chosen on images held out of the training set, out of at most {BUDGET} tries of each method."]
    for name, chosen in best.items():
        lines += ["", *(f"# {_said(each)}: mAP {scores[each]:.4f}" for each in tries(name))]
        settings = parse_method(chosen.label)[1]
        for table, content in (("settings", settings), ("plans", dict(chosen.plan))):
            if content:
                lines += [f'[{table}."{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in content.items())]
    for block in _others(path, best):
        lines += ["", block]
    with written_whole(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _others(path: Path, names: Container[str]) -> list[str]:
    """Return what a file says of other methods, with the scores that stand above each."""
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")[1:] if path.is_file() else []
    return [block for block in blocks if (found := _METHOD.search(block)) and found[1] not in names]


def _said(each: Try) -> str:
    return ", ".join([each.label, *(f"{key} {value:g}" for key, value in each.plan)])
