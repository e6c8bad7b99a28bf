"""Tables inside a Markdown file, made anew from records: a file says where they stand, and of what they are.

<!-- records results/cifar100 metrics=map,accuracy rows=lsh,itq,shclm -->
<!-- end of records -->
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxyhash.experiments import read_records
from proxyhash.report.comparison import METRIC_NAMES, Comparison, compare
from proxyhash.report.export import markdown_cell, metric_title
from proxyhash.utils.errors import InputError
from proxyhash.utils.markdown import escape_markdown

_SECTION = re.compile(r"(?P<begin><!-- records (?P<asked>[^>]*?) *-->\n).*?(?P<end><!-- end of records -->)", re.DOTALL)
_OPTIONS = ("metrics", "rows", "title")


@dataclass(frozen=True)
class TableSpec:
    """What a file asks for: metrics and rows of the comparison in a folder that has this in its title."""

    folder: Path
    metrics: tuple[str, ...] = ("map",)
    rows: tuple[str, ...] = ()  # in this order; none: all
    title: str = ""

    @classmethod
    def parse(cls, text: str, base: Path) -> "TableSpec":
        """Read the words of a comment; folders are seen from the file."""
        folder, *words = text.split()
        options = dict(word.partition("=")[::2] for word in words)
        for name in options:
            if name not in _OPTIONS:
                raise InputError(f"A table of records has no option {name}; it has {', '.join(_OPTIONS)}.")
        metrics = tuple(options.get("metrics", "map").split(","))
        for metric in metrics:
            if metric not in METRIC_NAMES:
                raise InputError(f"There is no metric {metric}; there are {', '.join(METRIC_NAMES)}.")
        rows = tuple(filter(None, options.get("rows", "").split(",")))
        return cls(base / folder, metrics, rows, options.get("title", ""))


def fill_tables(text: str, base: Path) -> str:
    """Return a Markdown text with all its tables of records made anew."""

    def table(found: re.Match[str]) -> str:
        lines = _table(TableSpec.parse(found["asked"], base))
        return found["begin"] + "\n" + "\n".join(lines) + "\n\n" + found["end"]

    return _SECTION.sub(table, text)


def _table(asked: TableSpec) -> Iterator[str]:
    """Yield one table; if it has several metrics, each row says which is its."""
    comparison = _find_comparison(asked)
    yield (
        f"| {metric_title(asked.metrics[0]) if len(asked.metrics) == 1 else ''} | "
        + " | ".join(f"{bits} bits" for bits in comparison.code_lengths)
        + " |"
    )
    yield "|---|" + "---:|" * len(comparison.code_lengths)
    for metric in asked.metrics:
        rows = asked.rows or comparison.rows_with(metric)
        for row in rows:
            cells = " | ".join(markdown_cell(comparison, row, bits, metric, rows) for bits in comparison.code_lengths)
            name = escape_markdown(row) if len(asked.metrics) == 1 else f"{escape_markdown(row)}: {metric_title(metric)}"
            yield f"| {name} | {cells} |"


def _find_comparison(asked: TableSpec) -> Comparison:
    found = [comparison for comparison in compare(read_records(asked.folder)) if asked.title in comparison.title]
    if len(found) != 1:
        titles = "; ".join(comparison.title for comparison in found) or "none"
        raise InputError(f"A table shows one comparison, and {asked.folder} has {len(found)} with that title: {titles}.")
    for row in asked.rows:
        if row not in found[0].rows:
            raise InputError(f"{asked.folder} has no row {row}; it has {', '.join(found[0].rows)}.")
    return found[0]
