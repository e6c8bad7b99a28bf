"""Rows with targets, and their output as a table or JSON, for all benchmarks."""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

from proxyhash.codes.bitsliced.llvm_ops import WIDE_WORDS
from proxyhash.utils import environment

Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One measurement and its target; a time limit of None is not a target."""

    name: str
    measured: float
    target: str
    reached: bool
    seconds: float
    seconds_limit: float | None = None
    note: str = ""

    @property
    def in_time(self) -> bool:
        """Return True if the time limit is kept."""
        return self.seconds_limit is None or self.seconds <= self.seconds_limit


def timed(work: Callable[..., Result], *arguments: Any, **named: Any) -> tuple[Result, float]:
    """Return the result of `work` and the seconds it took."""
    begin = time.perf_counter()
    result = work(*arguments, **named)
    return result, time.perf_counter() - begin


def alone(work: Callable[..., Result], *arguments: Any) -> Result:
    """Return the result of a function of a module in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def options_of(
    description: str | None, sections: Sequence[str], paths: Mapping[str, str] | None = None, **flags: str
) -> argparse.Namespace:
    """Parse the options of all benchmarks, --only and --json, and further path options and flags with their help texts."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(sections), help="comma-separated parts of the table")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    for option, help_text in (paths or {}).items():
        parser.add_argument(f"--{option}", type=Path, help=help_text)
    for flag, help_text in flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=help_text)
    options = parser.parse_args()
    options.only = options.only.split(",")
    if unknown := set(options.only) - set(sections):
        sys.exit(f"No such part: {', '.join(sorted(unknown))}; choose from {', '.join(sections)}.")
    return options


def run(title: str, sections: Mapping[str, Callable[[], Iterable[Row]]], options: argparse.Namespace) -> None:
    """Measure the chosen sections and report them."""
    rows = (row for part in options.only for row in sections[part]())
    report(title, rows, as_json=options.json)


def report(title: str, rows: Iterable[Row], *, as_json: bool) -> None:
    """Print each row as it is measured, or all of them as JSON at the end."""
    progress = Console(stderr=True)
    measured = []
    for row in rows:
        measured.append(row)
        progress.print(f"[dim]{row.name}: {row.measured:.5g} in {row.seconds:.1f} s[/dim]", highlight=False)
    if as_json:
        print(json.dumps(record(title, measured), indent=2))
    else:
        console = Console()
        console.width = max(console.width, 160)  # no truncated cells
        console.print(_table(title, measured))


def record(title: str, rows: Iterable[Row]) -> dict[str, Any]:
    """Return the rows, and what they were measured with, for JSON."""
    return {"title": title, **provenance(), "rows": [asdict(row) for row in rows]}


def provenance() -> dict[str, Any]:
    """Return the provenance of a measurement, with what benchmarks depend on besides."""
    made = environment.provenance()
    extra = {name: metadata.version(name) for name in ("faiss-cpu", "usearch") if find_spec(name.partition("-")[0])}
    features = {"registers": 64 * WIDE_WORDS}  # bits of the widest registers that our kernels use
    return {**made, "machine": {**made["machine"], **features}, "versions": {**made["versions"], **extra}}


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("what", "measured", "target", "", "seconds", "limit", "", "note"):
        table.add_column(heading, justify="left" if heading in ("what", "note") else "right")
    for row in rows:
        limit = "" if row.seconds_limit is None else f"{row.seconds_limit:g}"
        time_mark = "" if row.seconds_limit is None else _mark(row.in_time)
        cells = (row.name, f"{row.measured:.5g}", row.target, _mark(row.reached), f"{row.seconds:.1f}", limit, time_mark)
        table.add_row(*cells, row.note)
    return table


def _mark(good: bool) -> str:
    return "[green]ok[/green]" if good else "[red]MISSED[/red]"
