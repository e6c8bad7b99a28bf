"""Tuned settings: the files that `proxyhash tune` writes and that grids start from."""

import json
import re
from collections.abc import Container, Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from proxyhash.experiments.code_length_settings import ScoresByLength, toml_lines
from proxyhash.experiments.edges import Candidate, at_edge, best_candidate, parse_candidate
from proxyhash.experiments.grid import DEFAULT, Grid
from proxyhash.experiments.records import Record
from proxyhash.experiments.tuned_for import KEYS, tuned_for_of_records
from proxyhash.methods import get_method, parse_method
from proxyhash.methods.base import TUNED
from proxyhash.training.config import OptimConfig
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.config import check_keys, check_table, read_toml
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import RELEASE, REQUIRES, check_format
from proxyhash.utils.legacy_names import LEGACY_TUNED_FOLD_FILE, upgrade_tuned_settings

FORMAT = "proxyhash.tuned/3"
FORMATS = (FORMAT, "proxyhash.tuned/2")  # files of format 2 say neither what they were tuned for, nor what is at an edge
TUNED_FILE, TUNED_FOLD_FILE = "chosen.toml", "chosen-fold-{}.toml"
_HEADER = (
    f'# The best candidate of each row, by its mAP on validation data.\nformat = "{FORMAT}"\n{REQUIRES} = "{RELEASE}"\n'
)
_TABLES = ("settings", "optim_by_method", "at_edge")
_OPTIM_FIELDS = {field.name for field in fields(OptimConfig)}
_SCORE = re.compile(r"^# ([^\n]+): mAP (\d\.\d+)$", re.MULTILINE)
_ROW = re.compile(r'^\[\w+\."(.+)"\]$|\A# ([^:,\n]+): mAP [^\n]*\Z', re.MULTILINE)  # a table, or a row without any


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
    scores: Mapping[str, Mapping[Candidate, float]],
    path: Path,
    tuned_for: Mapping[str, Any],
    by_length: Mapping[str, ScoresByLength] = {},
) -> None:
    """Write the best candidate of each row, with the mAP of every candidate as a comment, and values by code length.

    `tuned_for` is the comparison, see `experiments.tuned_for`. Rows of the file that are not in `scores` stay in it.
    """
    lines = [*_HEADER.splitlines(), *_table("tuned_for", tuned_for)]
    for row, candidates in scores.items():
        lines += ["", *(f"# {candidate}: mAP {score:.4f}" for candidate, score in candidates.items())]
        best = best_candidate(candidates)
        for table, content in zip(_TABLES, (_settings(row, best), dict(best.optim), at_edge(candidates)), strict=True):
            lines += _table(f'{table}."{row}"', content)
        lines += toml_lines(row, by_length.get(row, {}))
    for block in _other_rows(path, scores):
        lines += ["", block]
    with atomic_write(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_tuned_for(path: Path) -> dict[str, Any]:
    """Return what the settings of a file were tuned for; the records beside an earlier file say it."""
    found = read_toml(path, upgrade_tuned).get("tuned_for")
    return tuned_for_of_records(path) if found is None else found


def upgrade_tuned(text: str) -> str:
    """Return the text of a file of tuned settings in today's names, and with the settings that are at an edge."""
    found = re.search(r'^format = "proxyhash.tuned/(\d+)"\n', text, re.MULTILINE)  # release 0.1 wrote no format
    if found is not None and found[1] != "2":
        return text
    if found is None:
        text = re.sub(r"\A#[^\n]*\n(?=\n)", _HEADER, upgrade_tuned_settings(text))
    header, *blocks = text.replace(f'"{FORMATS[1]}"', f'"{FORMATS[0]}"').strip().split("\n\n")
    return "\n\n".join([header, *("\n".join([block, *_edges_of_block(block)]) for block in blocks)]) + "\n"


def read_tuned_text(path: Path) -> str:
    """Return the text of a file as `upgrade_tuned`, and with what it was tuned for where the records beside it say it."""
    text = upgrade_tuned(path.read_text(encoding="utf-8"))
    header, gap, rows = text.partition("\n\n")
    if "[tuned_for]" in text:
        return text
    try:
        purpose = tuned_for_of_records(path)
    except InputError:
        return text
    return "\n".join([header, *_table("tuned_for", purpose)]) + gap + rows


def edges_of_record(record: Record, path: Path) -> dict[str, str] | None:
    """Return which settings of a record are at an edge, if it has those of a folder or a file of tuned settings."""
    trial, optim = record.trial, dict(record.trial["optim"] or {})
    lr = optim.pop("lr", None)
    grid = Grid(record.data["name"], (trial["label"],), (record.bits,), folds=(trial["fold"],), optim=optim)
    (tuned,) = tuned_grids(grid, path)
    found = next(tuned.trials())
    is_same = found.resolved_settings(tags=record.data["tags"] is not None) == trial["settings"]
    return tuned.edges(trial["label"]) if is_same and lr in (None, found.optim.lr) else None


def _edges_of_block(block: str) -> list[str]:
    """Return the table of settings at an edge for a block of an earlier file, from the mAP of all candidates."""
    scores = {parse_candidate(text): float(score) for text, score in _SCORE.findall(block)}
    row = _ROW.search(block)
    return _table(f'at_edge."{row[1]}"', at_edge(scores)) if scores and row and row[1] else []


def _table(title: str, content: Mapping[str, Any]) -> list[str]:
    lines = [f"{name} = {json.dumps(value)}" for name, value in content.items()]
    return [f"[{title}]", *lines] if lines else []


def _with_tuned(grid: Grid, path: Path) -> Grid:
    tuned = read_toml(path, upgrade_tuned)
    requires = tuned.pop(REQUIRES, None)
    check_format(path, tuned.pop("format", FORMAT), FORMATS, requires)
    check_keys(str(path), tuned, ["tuned_for", *_TABLES])
    purpose = tuned["tuned_for"] if "tuned_for" in tuned else tuned_for_of_records(path)
    check_table(f"{path}: tuned_for", purpose)
    check_keys(f"{path}: tuned_for", purpose, list(KEYS))
    rows = {*grid.methods, *(parse_method(label)[0] for label in grid.methods)}
    tables: dict[str, Any] = {}
    for table in _TABLES:
        check_table(f"{path}: {table}", tuned.get(table, {}))
        found = {row: content for row, content in tuned.get(table, {}).items() if row in rows}
        tables[table] = {**found, **getattr(grid, table)}
    tables["at_edge"] = {row: _without_given(grid, row, edges) for row, edges in tables["at_edge"].items()}
    return replace(grid, **tables, tuned_for=purpose)


def _without_given(grid: Grid, row: str, edges: Mapping[str, str]) -> dict[str, str]:
    """Return the settings at an edge without those that the grid gives itself."""
    given = {True: row in grid.optim_by_method, False: row in grid.settings}
    return {name: edge for name, edge in edges.items() if not given[name in _OPTIM_FIELDS]}


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
