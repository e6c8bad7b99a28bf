"""Comparisons: records of the same data, protocol and network, arranged as tables."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import Any

from proxyhash.experiments import Record
from proxyhash.methods.base import TUNED
from proxyhash.report.paper import paper_value

METRIC_NAMES = {
    "map": "mAP",
    "classification": "accuracy of softmax regression on codes",
    "accuracy": "accuracy by nearest proxy",
    "binarization_error": "binarization error",
}
"""Metrics by key. mAP with a cutoff has a key for each cutoff and denominator, such as `map@5000[retrieved]`."""

EDGE_MARK = "†"

_PERCENT_METRICS = ("map", "classification", "accuracy")
_RECORDED_MAP = re.compile(r"(mAP@\d+\[\w+\]) \[(?:real distances, )?ties expected\]")


def is_percent(metric: str) -> bool:
    """Return whether a metric is shown in percent, and a larger value is better."""
    return metric.partition("@")[0] in _PERCENT_METRICS


def metric_name(metric: str) -> str:
    """Return the name of a metric from its key."""
    return METRIC_NAMES.get(metric) or metric.replace("map", METRIC_NAMES["map"], 1)


def map_metrics(record: Record) -> dict[str, float]:
    """Return mAP by key, first that of the protocol, then by the other denominators that were recorded."""
    values = {record.map_name: record.metrics["map"]}
    for name, value in record.metrics.get("all", {}).items():
        if found := _RECORDED_MAP.fullmatch(name):
            values.setdefault(found[1], value)
    return {name.replace(METRIC_NAMES["map"], "map", 1): value for name, value in values.items()}


def metric_value(record: Record, metric: str) -> float | None:
    """Return a metric of a record by its key, or None."""
    value = map_metrics(record).get(metric) if metric.startswith("map") else record.metrics.get(metric)
    return value if isinstance(value, float) else None


@dataclass(frozen=True)
class Cell:
    """Mean of some runs, their standard deviation if there are several, and the paper's value."""

    mean: float
    std: float | None
    count: int
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """Difference from the paper's value."""
        return None if self.paper is None else self.mean - self.paper


def describe_network(data: Mapping[str, Any]) -> str:
    """Return the backbone of a record's data in words, with what was trained of it.

    Examples
    --------
    >>> describe_network({"backbone": "efficientnet_lite0", "finetune": 5})
    'efficientnet_lite0 with 5 fine-tuned upper stages'
    """
    finetune, name = data["finetune"], data["backbone"]
    if not isinstance(finetune, bool):
        return f"{name} with {finetune} fine-tuned upper stage{'s' * (finetune > 1)}"
    return f"{'fine-tuned' if finetune else 'frozen'} {name}"


@dataclass(frozen=True)
class Comparison:
    """Records that differ only in method, settings, code length, seed and fold."""

    records: tuple[Record, ...]

    @property
    def title(self) -> str:
        """Data set, protocol and network in words."""
        first = self.records[0]
        data, protocol = first.data, first.protocol
        tags = f", {data['tags']} most frequent tags" if data["tags"] else ""
        network = describe_network(data)
        if not data.get("pretrained", True):
            state = "trained from scratch" if data["finetune"] else "frozen at random weights"
            network = f"{data['backbone']} {state}"
        size = f" at {data['image_size']} pixels" if data["image_size"] else ""
        validation = ", evaluated on validation data" if protocol["eval_on"] == "validation" else ""
        return f"{data['name']}{tags}: {protocol['protocol']}@{protocol['version']}, {network}{size}{validation}"

    @property
    def code_lengths(self) -> list[int]:
        """Code lengths, shortest first."""
        return sorted({record.bits for record in self.records})

    @cached_property
    def rows(self) -> dict[str, tuple[Record, ...]]:
        """Records by row, in the order of their mean mAP over all runs, the best last; rows without that mAP come first."""
        found: dict[str, list[Record]] = {}
        for name, record in zip(_row_names(self.records), self.records, strict=True):
            found.setdefault(name, []).append(record)
        order = sorted(found, key=lambda name: self._mean_map(found[name]))
        return {name: tuple(found[name]) for name in order}

    def _mean_map(self, records: Sequence[Record]) -> float:
        values = [value for record in records if (value := metric_value(record, self.main_metric)) is not None]
        return mean(values) if values else -1.0

    @cached_property
    def main_metric(self) -> str:
        """The mAP of the protocol: a different one for each cutoff and denominator; that of the most recent record."""
        return next(iter(map_metrics(self.records[-1])))

    @property
    def metrics(self) -> list[str]:
        """Keys of the metrics that at least one record has; mAP has one for each cutoff and denominator."""
        keys = dict.fromkeys([self.main_metric, *(key for record in self.records for key in map_metrics(record))])
        keys |= dict.fromkeys(name for name in METRIC_NAMES if name != "map")
        return [key for key in keys if any(metric_value(record, key) is not None for record in self.records)]

    def rows_with(self, metric: str) -> list[str]:
        """Return the rows that have a metric."""
        return [row for row in self.rows if any(self.cell(row, bits, metric) for bits in self.code_lengths)]

    def select(self, row: str, bits: int) -> list[Record]:
        """Return the records of a row and a code length."""
        return [record for record in self.rows[row] if record.bits == bits]

    def stale_reason(self, row: str) -> str | None:
        """Return why a row is out of date; None if it is not."""
        return next((reason for record in self.rows[row] if (reason := record.stale_reason)), None)

    def edges(self, row: str) -> dict[str, str]:
        """Return the settings of a row that tuning chose at an edge of what it tried, with "lowest" or "highest"."""
        found: dict[str, dict[str, None]] = {}
        for record in self.rows[row]:
            for name, edge in (record.at_edge or {}).items():
                found.setdefault(name, {})[edge] = None
        return {name: " or ".join(edges) for name, edges in found.items()}  # folds are tuned one by one

    def row_title(self, row: str) -> str:
        """Return the name of a row for a table, marked if it is stale, or has a setting at an edge of what was tried."""
        return row + (" (stale)" if self.stale_reason(row) else "") + (f" {EDGE_MARK}" if self.edges(row) else "")

    def legend(self, rows: Sequence[str]) -> list[str]:
        """Return a sentence for each kind of mark that these rows have."""
        edges = {row: ", ".join(f"{name} {edge}" for name, edge in self.edges(row).items()) for row in rows}
        marks: dict[str, Mapping[str, str | None]] = {
            f"{EDGE_MARK} Tuning chose the lowest or the highest value that it tried": edges,
            "(stale) The numbers are out of date": {row: self.stale_reason(row) for row in rows},
        }
        listed = {mark: "; ".join(f"{row}: {why}" for row, why in found.items() if why) for mark, found in marks.items()}
        return [f"{mark} ({found})." for mark, found in listed.items() if found]

    def cell(self, row: str, bits: int, metric: str) -> Cell | None:
        """Return the cell of a row, a code length and a metric; None without a record."""
        scale = 100 if is_percent(metric) else 1
        records = self.select(row, bits)
        # A trial that was evaluated with two cutoffs counts once.
        found = {
            (repr(record.trial), record.protocol.get("fingerprint")): scale * value
            for record in records
            if (value := metric_value(record, metric)) is not None
        }
        if not found:
            return None
        values = list(found.values())
        first = records[0]
        where = first.data["name"], first.protocol["protocol"], metric, paper_row(first.trial), bits
        paper = paper_value(*where) if first.protocol["eval_on"] == "test" else None
        return Cell(mean(values), stdev(values) if len(values) > 1 else None, len(values), paper)

    def best(self, bits: int, metric: str, rows: Sequence[str] | None = None) -> float | None:
        """Return the best mean of a column, the lowest for an error; None if there is only one row."""
        rows = self.rows_with(metric) if rows is None else rows
        means = [cell.mean for row in rows if (cell := self.cell(row, bits, metric))]
        return (max if is_percent(metric) else min)(means) if means and len(rows) > 1 else None


def compare(records: Iterable[Record]) -> list[Comparison]:
    """Group records by data set, protocol and network.

    Records with another cutoff or denominator of mAP are in the same group: these are other metrics, not other columns.
    Of a row with records of several revisions of its method, only those of the latest are used.

    Parameters
    ----------
    records
        Records, for example from `proxyhash.experiments.read_records`.

    Returns
    -------
    list[Comparison]
        One comparison per group, ordered by title.

    Examples
    --------
    >>> compare([])
    []
    """
    groups: dict[str, list[Record]] = {}
    for record in records:
        settings = [record.data, *(record.protocol[name] for name in ("protocol", "version", "eval_on"))]
        groups.setdefault(repr(settings), []).append(record)
    return sorted(
        (Comparison(_latest_revisions(group)) for group in groups.values()), key=lambda comparison: comparison.title
    )


def _latest_revisions(records: Sequence[Record]) -> tuple[Record, ...]:
    latest: dict[str, int] = {}
    for record in records:
        latest[record.trial["label"]] = max(record.revision, latest.get(record.trial["label"], 0))
    return tuple(record for record in records if record.revision == latest[record.trial["label"]])


def paper_row(trial: dict[str, Any]) -> str:
    """Return the row of the paper for a trial: `shclm+triplet` for the joint loss; other losses have no row there."""
    settings = trial["settings"]
    loss = f":loss={settings['loss']}" if settings.get("loss", "softmax") != "softmax" else ""
    return f"{trial['method']}{'+triplet' if settings.get('triplet') else ''}{loss}"


def _row_names(records: Iterable[Record]) -> list[str]:
    """Return the row of each record: its label, with the settings in which trials of that label differ.

    Seeds, folds and code lengths do not make a row, nor do settings that differ only between folds, each of which is tuned,
    nor those that the label has as `tuned` and that differ only between code lengths.
    A network that was trained for several code lengths has another row than one that was trained for one.
    """
    trials = [(record.trial["label"], record.trial["fold"], record.bits, _all_settings(record.trial)) for record in records]
    variants: dict[str, dict[tuple[int, int | None], list[dict[str, Any]]]] = {}
    for label, fold, bits, settings in trials:
        found = variants.setdefault(label, {})
        tuned = {name for name in settings if f":{name}={TUNED}" in label}  # has another value for each code length
        found.setdefault((fold, None), []).append({name: settings[name] for name in settings if name not in tuned})
        found.setdefault((fold, bits), []).append({name: settings[name] for name in tuned})
    differing = {
        label: dict.fromkeys(name for variant in found.values() for name in _differing(variant))
        for label, found in variants.items()
    }
    return [_row_name(label, {name: settings.get(name) for name in differing[label]}) for label, *_, settings in trials]


def _all_settings(trial: dict[str, Any]) -> dict[str, Any]:
    optim = {name: value for name, value in (trial["optim"] or {}).items() if name != "seed"}
    lengths = trial["code_lengths"]
    trained = f"for {lengths} bits at once" if len(lengths) > 1 else "alone"
    return {**trial["settings"], **optim, "trained": trained}


def _differing(variants: list[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for settings in variants for name in settings)
    return [name for name in names if len({repr(settings.get(name)) for settings in variants}) > 1]


def _row_name(label: str, settings: dict[str, Any]) -> str:
    described = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{label} ({described})" if described else label
