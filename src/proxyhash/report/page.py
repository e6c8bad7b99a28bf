"""Report page: one self-contained HTML file."""

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from proxyhash.report.comparison import Comparison
from proxyhash.report.export import format_cell, metric_title
from proxyhash.report.figures import draw_figures
from proxyhash.report.gallery import Gallery
from proxyhash.report.provenance import describe_provenance
from proxyhash.utils.atomic_io import atomic_write


def write_page(
    comparisons: Sequence[Comparison],
    path: Path,
    *,
    title: str = "Comparison of hashing methods",
    galleries: Sequence[Gallery] = (),
) -> None:
    """Write tables, figures and galleries to one HTML file that needs no network.

    Parameters
    ----------
    comparisons
        Each becomes a section.
    path
        The file to write.
    title
        Title of the page.
    galleries
        Retrieval examples of models.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page([], Path(folder) / "report.html", title="Empty")
    ...     (Path(folder) / "report.html").read_text().count("<h1>Empty</h1>")
    1
    """
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
        "settings": _settings(comparison),
        "provenance": describe_provenance(comparison.records),
    }


def _table(comparison: Comparison, metric: str) -> dict[str, Any]:
    rows = comparison.rows_with(metric)
    shown = [
        {
            "title": comparison.row_title(row),
            "stale": comparison.stale_reason(row),
            "cells": [_cell(comparison, row, bits, metric) for bits in comparison.code_lengths],
        }
        for row in rows
    ]
    return {"title": metric_title(metric), "rows": shown, "legend": comparison.legend(rows)}


def _cell(comparison: Comparison, row: str, bits: int, metric: str) -> dict[str, Any]:
    cell = comparison.cell(row, bits, metric)
    if cell is None:
        return {"text": "", "paper": "", "best": False}
    paper = "" if cell.difference is None else f"paper {cell.paper:.1f} ({cell.difference:+.1f})"
    return {"text": format_cell(cell, metric), "paper": paper, "best": cell.mean == comparison.best(bits, metric)}


def _settings(comparison: Comparison) -> str:
    """Return the shared settings as JSON, then one line for each record."""
    first = comparison.records[0]
    shared = {"data": first.data, "protocol": first.protocol, "versions": first.versions, "machine": first.machine}
    lines = [json.dumps(shared, indent=1, ensure_ascii=False), ""]
    for record in comparison.records:
        trial = {key: record.trial[key] for key in ("label", "settings", "seed", "fold", "optim")}
        lines.append(json.dumps({"bits": record.bits, **trial, "seconds": record.seconds}, ensure_ascii=False))
    return "\n".join(lines)
