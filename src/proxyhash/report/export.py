"""Comparisons as Markdown for people and as CSV for programs."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from proxyhash.report.comparison import METRIC_NAMES, PERCENT_METRICS, Cell, Comparison
from proxyhash.utils.markdown import escape_markdown

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet calculate


def to_markdown(comparisons: Iterable[Comparison]) -> str:
    """Return one table for each comparison and metric, with the paper's numbers where it has them."""
    return "\n".join(line for comparison in comparisons for line in _section(comparison))


def _section(comparison: Comparison) -> Iterator[str]:
    yield f"## {escape_markdown(comparison.title)}\n"
    for metric in comparison.metrics:
        yield f"{metric_title(metric)}\n"
        yield "| method | " + " | ".join(f"{bits} bits" for bits in comparison.code_lengths) + " |"
        yield "|---|" + "---:|" * len(comparison.code_lengths)
        for label in comparison.rows_with(metric):
            cells = (markdown_cell(comparison, label, bits, metric) for bits in comparison.code_lengths)
            yield f"| {escape_markdown(label)} | " + " | ".join(cells) + " |"
        yield ""


def markdown_cell(comparison: Comparison, label: str, bits: int, metric: str, rows: Sequence[str] | None = None) -> str:
    """Return mean and spread, in bold where they are the best of a column among some rows, and the paper's number."""
    cell = comparison.cell(label, bits, metric)
    if cell is None:
        return ""
    text = format_cell(cell, metric)
    text = f"**{text}**" if cell.mean == comparison.best(bits, metric, rows) else text
    return text if cell.paper is None else f"{text} (paper {cell.paper:.1f})"


def format_cell(cell: Cell, metric: str) -> str:
    """Return mean and spread as people read them."""
    digits = 1 if metric in PERCENT_METRICS else 3
    return f"{cell.mean:.{digits}f}" + ("" if cell.std is None else f" ± {cell.std:.{digits}f}")


def metric_title(metric: str) -> str:
    """Return what a metric is called, and its unit."""
    return METRIC_NAMES[metric] + (", %" if metric in PERCENT_METRICS else "")


def to_csv(comparisons: Iterable[Comparison]) -> str:
    """Return one line for each cell; no text of the data becomes a formula."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["comparison", "method", "bits", "metric", "mean", "spread", "runs", "paper"])
    for comparison in comparisons:
        for metric in comparison.metrics:
            for label in comparison.rows_with(metric):
                for bits in comparison.code_lengths:
                    if cell := comparison.cell(label, bits, metric):
                        spread, paper = ("" if value is None else f"{value:.6g}" for value in (cell.std, cell.paper))
                        texts = [_without_formula(comparison.title), _without_formula(label)]
                        table.writerow([*texts, bits, metric, f"{cell.mean:.6g}", spread, cell.count, paper])
    return out.getvalue()


def _without_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
