"""Tables of records inside Markdown files.

<!-- records results/cifar100 metrics=map,accuracy rows=lsh,itq,shclm -->
<!-- end of records -->

The word `revisions` instead of `records` gives a table of candidates, see `revision_table`.
"""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proxyhash.experiments import Record, read_records
from proxyhash.report.comparison import Comparison, compare
from proxyhash.report.export import markdown_cell, metric_title
from proxyhash.report.revisions import revision_table
from proxyhash.utils.config import check_keys
from proxyhash.utils.errors import InputError
from proxyhash.utils.markdown import escape_markdown
from proxyhash.utils.registry import lookup, suggest

_SECTION = re.compile(
    r"(?P<begin><!-- (?P<kind>records|revisions) (?P<spec>[^>]*?) *-->\n).*?(?P<end><!-- end of records -->)", re.DOTALL
)


@dataclass(frozen=True)
class TableSpec:
    """The content of one table: metrics and rows of the comparison in a folder whose title contains `title`."""

    folder: Path
    metrics: tuple[str, ...] = ()  # keys, such as map or map@5000[retrieved]; empty: the mAP of the protocol
    rows: tuple[str, ...] = ()  # in this order; empty: all
    title: str = ""

    @classmethod
    def parse(cls, text: str, base: Path) -> "TableSpec":
        """Read the words of a comment; the folder is relative to `base`."""
        folder, *words = text.split()
        options = dict(word.partition("=")[::2] for word in words)
        check_keys("A table of records", options, ["metrics", "rows", "title"])
        metrics = tuple(filter(None, options.get("metrics", "").split(",")))
        rows = tuple(filter(None, options.get("rows", "").split(",")))
        return cls(base / folder, metrics, rows, options.get("title", ""))


def fill_tables(text: str, base: Path) -> str:
    """Return a Markdown text with all its tables of records computed again."""

    def table(found: re.Match[str]) -> str:
        spec = TableSpec.parse(found["spec"], base)
        lines = _table(spec) if found["kind"] == "records" else revision_table(_candidates(spec), spec.rows)
        return found["begin"] + "\n" + "\n".join(lines) + "\n\n" + found["end"]

    return _SECTION.sub(table, text)


def _candidates(spec: TableSpec) -> list[Record]:
    return [record for record in read_records(spec.folder) if record.trial["method"] in spec.rows]


def _table(spec: TableSpec) -> Iterator[str]:
    """Yield the lines of one table; with several metrics, each row names its own."""
    comparison = _find_comparison(spec)
    metrics = spec.metrics or (comparison.main_metric,)
    for metric in metrics:
        lookup("metric", metric, dict.fromkeys(comparison.metrics))
    has_one_metric = len(metrics) == 1
    corner = escape_markdown(metric_title(metrics[0])) if has_one_metric else ""
    yield f"| {corner} | " + " | ".join(f"{bits} bits" for bits in comparison.code_lengths) + " |"
    yield "|---|" + "---:|" * len(comparison.code_lengths)
    shown: dict[str, None] = {}
    for metric in metrics:
        rows = spec.rows or comparison.rows_with(metric)
        shown |= dict.fromkeys(rows)
        for row in rows:
            cells = " | ".join(markdown_cell(comparison, row, bits, metric, rows) for bits in comparison.code_lengths)
            name = escape_markdown(comparison.row_title(row))
            yield f"| {name if has_one_metric else f'{name}: {escape_markdown(metric_title(metric))}'} | {cells} |"
    for line in comparison.legend(list(shown)):
        yield from ("", *textwrap.wrap(escape_markdown(line), 150))


def _find_comparison(spec: TableSpec) -> Comparison:
    found = [comparison for comparison in compare(read_records(spec.folder)) if spec.title in comparison.title]
    if len(found) != 1:
        titles = "; ".join(comparison.title for comparison in found) or "none"
        raise InputError(f"A table shows one comparison, and {spec.folder} has {len(found)} with that title: {titles}.")
    for row in spec.rows:
        if row not in found[0].rows:
            raise InputError(f"{spec.folder} has no row {row}; {suggest(row, found[0].rows)}")
    return found[0]
