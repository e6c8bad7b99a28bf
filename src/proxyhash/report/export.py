"""Comparisons as Markdown and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from proxyhash.report.comparison import Cell, Comparison, is_percent, metric_name
from proxyhash.report.provenance import describe_provenance
from proxyhash.utils.markdown import escape_markdown

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would evaluate such text


def to_markdown(comparisons: Iterable[Comparison]) -> str:
    """Return one Markdown table per comparison and metric, with the paper's values where it has them."""
    return "\n".join(line for comparison in comparisons for line in _section(comparison))


def _section(comparison: Comparison) -> Iterator[str]:
    yield f"## {escape_markdown(comparison.title)}\n"
    yield from (f"{escape_markdown(line)}\n" for line in describe_provenance(comparison.records))
    for metric in comparison.metrics:
        yield f"{escape_markdown(metric_title(metric))}\n"
        yield "| method | " + " | ".join(f"{bits} bits" for bits in comparison.code_lengths) + " |"
        yield "|---|" + "---:|" * len(comparison.code_lengths)
        for row in comparison.rows_with(metric):
            cells = (markdown_cell(comparison, row, bits, metric) for bits in comparison.code_lengths)
            yield f"| {escape_markdown(comparison.row_title(row))} | " + " | ".join(cells) + " |"
        yield ""
        yield from (f"{escape_markdown(line)}\n" for line in comparison.legend(comparison.rows_with(metric)))


def markdown_cell(comparison: Comparison, row: str, bits: int, metric: str, rows: Sequence[str] | None = None) -> str:
    """Return mean and standard deviation, in bold for the best of a column among `rows`, and the paper's value."""
    cell = comparison.cell(row, bits, metric)
    if cell is None:
        return ""
    text = format_cell(cell, metric)
    text = f"**{text}**" if cell.mean == comparison.best(bits, metric, rows) else text
    return text if cell.paper is None else f"{text} (paper {cell.paper:.1f})"


def format_cell(cell: Cell, metric: str) -> str:
    """Return mean and standard deviation, such as `71.0 ± 1.4`."""
    digits = 1 if is_percent(metric) else 3
    return f"{cell.mean:.{digits}f}" + ("" if cell.std is None else f" ± {cell.std:.{digits}f}")


def metric_title(metric: str) -> str:
    """Return the name of a metric with its unit."""
    return metric_name(metric) + (", %" if is_percent(metric) else "")


def to_csv(comparisons: Iterable[Comparison]) -> str:
    """Return one CSV line per cell; a spreadsheet evaluates none of its text as a formula."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["comparison", "method", "bits", "metric", "mean", "std", "runs", "paper", "stale", "at_edge"])
    for comparison in comparisons:
        for metric in comparison.metrics:
            for row in comparison.rows_with(metric):
                for bits in comparison.code_lengths:
                    if cell := comparison.cell(row, bits, metric):
                        std, paper = ("" if value is None else f"{value:.6g}" for value in (cell.std, cell.paper))
                        texts = [_without_formula(text) for text in (comparison.title, row)]
                        stale = comparison.stale_reason(row) or ""
                        edges = " ".join(f"{name}={edge}" for name, edge in comparison.edges(row).items())
                        table.writerow([*texts, bits, metric, f"{cell.mean:.6g}", std, cell.count, paper, stale, edges])
    return out.getvalue()


def _without_formula(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
