"""Tuned settings: the files that `proxyhash tune` writes and that grids start from."""

import json
import re
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proxyhash.experiments.code_length_settings import ScoresByLength, toml_lines
from proxyhash.experiments.grid import DEFAULT, Grid
from proxyhash.methods import get_method, parse_method
from proxyhash.methods.base import TUNED
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.config import check_keys, check_table, read_toml
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.legacy_names import LEGACY_TUNED_FOLD_FILE, upgrade_tuned_settings

FORMAT = "proxyhash.tuned/2"
TUNED_FILE, TUNED_FOLD_FILE = "chosen.toml", "chosen-fold-{}.toml"
_HEADER = (
    f'# The best candidate of each row, by its mAP on validation data.\nformat = "{FORMAT}"\n{REQUIRES} = "{RELEASE}"\n'
)
_TABLES = ("settings", "optim_by_method")
_ROW = re.compile(r'^\[\w+\."(.+)"\]$|\A# ([^:,\n]+): mAP [^\n]*\Z', re.MULTILINE)  # a table, or a row without any


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a row such as `shclm:tau=4.0`, and the optimizer settings that go with it."""

    label: str
    optim: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        """Return it as the comments of a file have it: `shclm:tau=4.0, lr 0.005`."""
        return ", ".join([self.label, *(f"{name} {value:g}" for name, value in self.optim)])


def tuned_grids(grid: Grid, path: Path | None) -> list[Grid]:
    """Return a grid with tuned settings: one grid, or one per fold if each fold was tuned.

    `path` is a folder of `proxyhash tune` or one of its files. Settings that the grid gives itself are kept.
    """
    if path is None:
        return [grid]
    if not path.is_dir():
        return [_with_tuned(grid, path)]
    has_folds, common = _has_fold_files(path), path / TUNED_FILE
    if has_folds and common.is_file():
        raise InputError(f"{path} has settings for each fold and for a protocol without folds; name the file to use.")
    if not has_folds:
        return [_with_tuned(grid, common)]
    folds = [replace(grid, folds=(fold,)) for fold in grid.folds]
    return [_with_tuned(each, _fold_file(path, *each.folds)) for each in folds]


def write_tuned(
    scores: Mapping[str, Mapping[Candidate, float]], path: Path, by_length: Mapping[str, ScoresByLength] = {}
) -> None:
    """Write the best candidate of each row, with the mAP of every candidate as a comment, and values by code length.

    Rows of the file that are not in `scores` stay in it.
    """
    lines = _HEADER.splitlines()
    for row, candidates in scores.items():
        lines += ["", *(f"# {candidate}: mAP {score:.4f}" for candidate, score in candidates.items())]
        best = best_candidate(candidates)
        for table, content in zip(_TABLES, (_settings(row, best), dict(best.optim)), strict=True):
            if content:
                lines += [f'[{table}."{row}"]', *(f"{name} = {json.dumps(value)}" for name, value in content.items())]
        lines += toml_lines(row, by_length.get(row, {}))
    for block in _other_rows(path, scores):
        lines += ["", block]
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def best_candidate(scores: Mapping[Candidate, float]) -> Candidate:
    """Return the first candidate with the highest score."""
    return max(scores, key=lambda candidate: scores[candidate])


def upgrade_tuned(text: str) -> str:
    """Return the text of a file of tuned settings in today's names."""
    if re.search(r'^format = "proxyhash.tuned/', text, re.MULTILINE):  # release 0.1 wrote no format
        return text
    return re.sub(r"\A#[^\n]*\n(?=\n)", _HEADER, upgrade_tuned_settings(text))


def _with_tuned(grid: Grid, path: Path) -> Grid:
    tuned = read_toml(path, upgrade_tuned)
    requires = tuned.pop(REQUIRES, None)
    check_format(path, tuned.pop("format", FORMAT), (FORMAT,), requires)
    check_keys(str(path), tuned, list(_TABLES))
    rows = {*grid.methods, *(parse_method(label)[0] for label in grid.methods)}
    tables: dict[str, Any] = {}
    for table in _TABLES:
        check_table(f"{path}: {table}", tuned.get(table, {}))
        found = {row: content for row, content in tuned.get(table, {}).items() if row in rows}
        tables[table] = {**found, **getattr(grid, table)}
    return replace(grid, **tables)


def _has_fold_files(folder: Path) -> bool:
    return any(folder.glob(TUNED_FOLD_FILE.format("*"))) or any(folder.glob(LEGACY_TUNED_FOLD_FILE.format("*")))


def _fold_file(folder: Path, fold: int) -> Path:
    new, legacy = (folder / name.format(fold) for name in (TUNED_FOLD_FILE, LEGACY_TUNED_FOLD_FILE))
    return legacy if legacy.is_file() and not new.exists() else new


def _settings(row: str, best: Candidate) -> dict[str, Any]:
    """Return the settings to write.

    A row with settings of its own gets all of them; otherwise the settings tuned for its method would be added.
    """
    method, settings = parse_method(best.label)
    if row == method:
        return settings
    complete = asdict(get_method(method).settings(**settings))
    return {name: DEFAULT if value is None else value for name, value in complete.items() if value != TUNED}


def _other_rows(path: Path, rows: Container[str]) -> list[str]:
    """Return the blocks of a file about other rows, scores included."""
    blocks = upgrade_tuned(path.read_text(encoding="utf-8")).strip().split("\n\n")[1:] if path.is_file() else []
    return [block for block in blocks if (found := _ROW.search(block)) and (found[1] or found[2]) not in rows]
