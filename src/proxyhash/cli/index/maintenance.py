"""`proxyhash index info`, `verify`, `compact` and `migrate`: the state of an index."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from proxyhash.cli.index.opening import open_index, open_local_index
from proxyhash.cli.output import SafeConsole, cell, print_line, print_result
from proxyhash.cli.parameters import Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import DamagedError

if TYPE_CHECKING:
    from proxyhash.index import Index


def info(index_: Annotated[str, Parameter(name="index")], /, *, sample: Int | None = None, json_: Json = False) -> None:
    """Describe an index.

    Parameters
    ----------
    index_
        The folder of the index, or its address on a Milvus server.
    sample
        Search for the 10 nearest of so many random items, and print by which plans, and with how many codes a query is
        compared.
    json_
        Print JSON instead of a table.
    """
    with open_index(index_) if sample is None else open_local_index(index_) as opened:
        if sample is not None:
            _search_sample(opened, sample)
        facts = opened.info()
    if json_:
        print(json.dumps(facts.as_dict(), indent=2))
        return
    rows = [
        ("items", f"{facts.items:,}"),
        ("bits", str(facts.bits)),
        ("model", facts.model or "none: codes from elsewhere"),
        ("searched by", facts.plan if facts.plan == "scan" else f"{facts.plan}, exactly"),
        ("no match", "calibrated" if facts.calibrated else "not calibrated; see proxyhash index calibrate --help"),
    ]
    if facts.refinement is not None:
        rows.append(("refinement", f"{facts.refinement}, of {facts.refined_items:,} items"))
    if facts.width is not None:
        rows.append(("vectors", f"of {facts.width:,} values; {facts.kept_vectors:,} are kept"))
    if facts.columns:
        rows.append(("columns", ", ".join(f"{name} ({kind})" for name, kind in facts.columns.items())))
    if facts.sources is not None:
        rows.append(("images from" if facts.width is None else "vectors from", ", ".join(facts.sources) or "nowhere"))
    if facts.bytes_on_disk is not None:
        rows.append(("on disk", f"{facts.bytes_on_disk / 1e6:,.1f} MB"))
    if facts.memory:
        rows.append(("in memory", ", ".join(f"{plan} {size / 1e6:,.1f} MB" for plan, size in facts.memory.items())))
    if facts.mean_compared is not None:
        plans = ", ".join(f"{count:,} by {plan}" for plan, count in facts.searched_by.items())
        rows.append(("compared", f"{facts.mean_compared:,.0f} codes a query, the mean of {plans}"))
    _print_rows(rows)


def _search_sample(index: "Index", count: int) -> None:
    """Search for random items by their codes, as a process does that searches often."""
    from proxyhash.utils.jit import cold_start

    cold_start.end()
    keys = [item.key for item in index.sample_items(count)]
    if keys:
        index.search(index.stored_queries(keys), refine=False)


def _print_rows(rows: list[tuple[str, str]]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    for name, value in rows:
        table.add_row(cell(name), cell(value))
    SafeConsole(highlight=False).print(table)


def verify(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Read everything in an index and report problems; the exit code is 1 if there are any.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    from proxyhash.index.maintenance import VerifyReport
    from proxyhash.index.maintenance import verify as verify_index

    try:
        with open_local_index(index_) as opened:
            found = verify_index(opened)
    except DamagedError as error:  # it cannot even be opened
        found = VerifyReport(0, 0, (str(error),))
    if json_:
        print(json.dumps(found.as_dict(), indent=2))
    else:
        for problem in found.problems:
            print_line(problem)
        print_line(f"{index_}: {found.items:,} items in {found.blocks:,} blocks, {'ok' if found.ok else 'DAMAGED'}.")
    if not found.ok:
        sys.exit(1)


def compact(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Return unused space to the disk, and choose clusters again.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    from proxyhash.index.maintenance import compact as compact_index

    with open_local_index(index_) as opened:
        before, after = compact_index(opened)
    sentence = f"{index_}: {before / 1e6:,.1f} MB before, {after / 1e6:,.1f} MB now."
    print_result({"bytes_before": before, "bytes_now": after}, sentence, as_json=json_)


def migrate(index_: Annotated[str, Parameter(name="index")], /, *, json_: Json = False) -> None:
    """Bring an index of an older release to the format of this one.

    Every command that opens an index does so; this one shows the progress. It can be stopped and run again.

    Parameters
    ----------
    index_
        The folder of the index.
    json_
        Print JSON.
    """
    with progress_bars() as progress, open_local_index(index_, progress) as opened:
        count = len(opened)
    print_result({"items": count}, f"{index_} has the format of this release; it holds {count:,} items.", as_json=json_)
