"""Tables of the best candidates of methods before and after a change of their form."""

from collections.abc import Iterator, Sequence

from proxyhash.experiments import Record
from proxyhash.methods import get_method
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
    ways = {
        (record.bits, str(record.data), record.protocol["eval_on"], record.protocol.get("fingerprint")) for record in records
    }
    if len(ways) > 1:
        raise InputError("Candidates are compared at one code length, on one split of one data set.")
    yield "| method | mAP before, % | candidates | mAP after, % | candidates | best settings after |"
    yield "|---|---:|---:|---:|---:|---|"
    for method in methods:
        mine = [record for record in records if record.trial["method"] == method]
        present = get_method(method).revision
        before = [record for record in mine if record.revision < present]
        after = [record for record in mine if record.revision == present]
        for candidates, time in ((before, "before"), (after, "after")):
            if not candidates:
                raise InputError(f"There are no candidates of {method} from {time} its change.")
        cells = (f"{100 * max(map(_map, each)):.1f} | {len(each)}" for each in (before, after))
        yield f"| {escape_markdown(method)} | {' | '.join(cells)} | {escape_markdown(_describe(max(after, key=_map)))} |"


def _evaluation(record: Record) -> tuple[object, ...]:
    return record.bits, str(record.data), record.protocol["eval_on"], record.protocol.get("fingerprint")


def _map(record: Record) -> float:
    return float(record.metrics["map"])


def _describe(record: Record) -> str:
    """Return the settings that a candidate names and its learning rate."""
    settings = record.trial["label"].split(":")[1:]
    optim = record.trial["optim"]
    return ", ".join([*settings, *([] if optim is None else [f"lr {optim['lr']:g}"])]) or "defaults"
