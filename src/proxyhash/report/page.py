"""One page with everything on it: tables, figures, galleries, and how each number came to be."""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from proxyhash.report.comparison import METRIC_NAMES, PERCENT_METRICS, Comparison
from proxyhash.report.export import format_cell
from proxyhash.report.figures import draw_figures
from proxyhash.report.gallery import Gallery
from proxyhash.utils.atomic_io import atomic_write


def write_page(
    comparisons: Sequence[Comparison],
    path: Path,
    *,
    title: str = "Comparison of hashing methods",
    galleries: Sequence[Gallery] = (),
) -> None:
    """Write the page; all text that comes from data is escaped."""
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    page = environment.from_string(template).render(
        title=title,
        count=sum(len(comparison.records) for comparison in comparisons),
        sections=[_section(comparison) for comparison in comparisons],
        galleries=galleries,
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _section(comparison: Comparison) -> dict[str, Any]:
    return {
        "title": comparison.title,
        "code_lengths": comparison.code_lengths,
        "tables": [_table(comparison, metric) for metric in comparison.metrics],
        "figures": list(draw_figures(comparison)),
        "recipes": _recipes(comparison),
    }


def _table(comparison: Comparison, metric: str) -> dict[str, Any]:
    rows = [
        {"label": label, "cells": [_cell(comparison, label, bits, metric) for bits in comparison.code_lengths]}
        for label in comparison.rows_with(metric)
    ]
    return {"title": METRIC_NAMES[metric] + (", %" if metric in PERCENT_METRICS else ""), "rows": rows}


def _cell(comparison: Comparison, label: str, bits: int, metric: str) -> dict[str, Any]:
    cell = comparison.cell(label, bits, metric)
    if cell is None:
        return {"text": "", "paper": "", "best": False}
    paper = "" if cell.difference is None else f"paper {cell.paper:.1f} ({cell.difference:+.1f})"
    return {"text": format_cell(cell, metric), "paper": paper, "best": cell.mean == comparison.best(bits, metric)}


def _recipes(comparison: Comparison) -> str:
    """Return settings, seeds, seconds, versions and machine of every result, one line each, and what they share."""
    first = comparison.records[0]
    shared = {"data": first.data, "protocol": first.protocol, "versions": first.versions, "machine": first.machine}
    lines = [json.dumps(shared, indent=1, ensure_ascii=False), ""]
    for record in comparison.records:
        trial = {key: record.trial[key] for key in ("label", "settings", "seed", "fold", "optim")}
        lines.append(json.dumps({"bits": record.bits, **trial, "seconds": record.seconds}, ensure_ascii=False))
    return "\n".join(lines)
