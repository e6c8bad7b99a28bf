"""Tables of the best candidates of methods before and after a change of their form."""

import json
import textwrap
from collections.abc import Iterator, Sequence

from proxyhash.experiments import Record
from proxyhash.experiments.edges import Candidate, at_edge
from proxyhash.methods import get_method
from proxyhash.report.comparison import EDGE_MARK
from proxyhash.utils.errors import InputError
from proxyhash.utils.markdown import escape_markdown


def revision_table(records: Sequence[Record], methods: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table with the best candidate of each method by mAP, of earlier revisions and of the present one.

    Parameters
    ----------
    records
        Candidates at one code length, as `proxyhash tune` records them.
    methods
        The rows, in this order.

    Raises
    ------
    InputError
        If records of a method are missing, or were evaluated in several ways.
    """
    if len(set(map(_evaluation, records))) > 1:
        raise InputError("Candidates are compared at one code length, on one split of one data set.")
    yield "| method | mAP before, % | candidates | mAP after, % | candidates | best settings after |"
    yield "|---|---:|---:|---:|---:|---|"
    edges: list[str] = []
    for method in methods:
        before, after = _by_revision([record for record in records if record.trial["method"] == method], method)
        cells = [escape_markdown(method)]
        for time, candidates in (("before", before), ("after", after)):
            found = _edges(candidates)
            edges += [f"{method} {time}: {', '.join(f'{name} {edge}' for name, edge in found.items())}"] if found else []
            mark = f" {EDGE_MARK}" if found else ""
            cells += [f"{100 * max(map(_map, candidates)):.1f}{mark}", str(len(candidates))]
        yield f"| {' | '.join(cells)} | {escape_markdown(_describe(max(after, key=_map)))} |"
    if edges:
        legend = f"{EDGE_MARK} The best candidate has the lowest or the highest value that was tried ({'; '.join(edges)})."
        yield from ("", *textwrap.wrap(escape_markdown(legend), 150))


def _by_revision(records: Sequence[Record], method: str) -> tuple[list[Record], list[Record]]:
    """Return the candidates of earlier revisions of a method, and those of the present one."""
    present = get_method(method).revision
    before = [record for record in records if record.revision < present]
    after = [record for record in records if record.revision == present]
    for candidates, time in ((before, "before"), (after, "after")):
        if not candidates:
            raise InputError(f"There are no candidates of {method} from {time} its change.")
    return before, after


def _edges(candidates: Sequence[Record]) -> dict[str, str]:
    """Return the settings of the best candidate that are at an edge, by all that is recorded: defaults may have changed."""
    scores = {}
    for record in candidates:
        trial = record.trial
        settings = (f"{name}={json.dumps(value)}" for name, value in trial["settings"].items())
        optim = () if trial["optim"] is None else (("lr", trial["optim"]["lr"]),)
        scores[Candidate(":".join([trial["method"], *settings]), optim)] = _map(record)
    return at_edge(scores)


def _evaluation(record: Record) -> tuple[object, ...]:
    return record.bits, str(record.data), record.protocol["eval_on"], record.protocol.get("fingerprint")


def _map(record: Record) -> float:
    return float(record.metrics["map"])


def _describe(record: Record) -> str:
    """Return the settings that a candidate names and its learning rate."""
    settings = record.trial["label"].split(":")[1:]
    optim = record.trial["optim"]
    return ", ".join([*settings, *([] if optim is None else [f"lr {optim['lr']:g}"])]) or "defaults"
