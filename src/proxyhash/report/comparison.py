"""Records that may stand in one table: same data, same protocol, same network. What stands in its cells."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, stdev
from typing import Any

from proxyhash.experiments import Record
from proxyhash.report.paper import paper_value
from proxyhash.report.rows import row_names

METRIC_NAMES = {
    "map": "mAP",
    "classification": "accuracy of softmax regression on codes",
    "accuracy": "accuracy by nearest proxy",
    "binarization_error": "binarization error",
}
PERCENT_METRICS = ("map", "classification", "accuracy")


@dataclass(frozen=True)
class Cell:
    """The mean of some runs, their standard deviation if there are several, and the paper's number."""

    mean: float
    std: float | None
    count: int
    paper: float | None = None

    @property
    def difference(self) -> float | None:
        """Return how far above the paper it is."""
        return None if self.paper is None else self.mean - self.paper


@dataclass(frozen=True)
class Comparison:
    """Records in the same circumstances."""

    records: tuple[Record, ...]

    @property
    def title(self) -> str:
        """Return what is compared, in words."""
        first = self.records[0]
        data, protocol = first.data, first.protocol
        tags = f", {data['tags']} most frequent tags" if data["tags"] else ""
        network = f"{'fine-tuned' if data['finetune'] else 'frozen'} {data['backbone']}"
        size = f" at {data['image_size']} pixels" if data["image_size"] else ""
        rehearsed = ", rehearsed on the training set" if protocol["eval_on"] == "validation" else ""
        return f"{data['name']}{tags}: {protocol['protocol']}@{protocol['version']}, {network}{size}{rehearsed}"

    @property
    def code_lengths(self) -> list[int]:
        """Return the code lengths, shortest first."""
        return sorted({record.bits for record in self.records})

    @cached_property
    def rows(self) -> dict[str, tuple[Record, ...]]:
        """Return the records of each row, by their mean mAP over all that was run, the best last."""
        found: dict[str, list[Record]] = {}
        for name, record in zip(row_names(self.records), self.records, strict=True):
            found.setdefault(name, []).append(record)
        order = sorted(found, key=lambda name: mean(record.metrics["map"] for record in found[name]))
        return {name: tuple(found[name]) for name in order}

    @property
    def labels(self) -> list[str]:
        """Return what the rows are called, the best last."""
        return list(self.rows)

    @property
    def metrics(self) -> list[str]:
        """Return what was measured and can be compared."""
        return [name for name in METRIC_NAMES if any(isinstance(r.metrics.get(name), float) for r in self.records)]

    def rows_with(self, metric: str) -> list[str]:
        """Return the rows that have a metric."""
        return [label for label in self.labels if any(self.cell(label, bits, metric) for bits in self.code_lengths)]

    def select(self, label: str, bits: int) -> list[Record]:
        """Return the records of a row and a length."""
        return [record for record in self.rows[label] if record.bits == bits]

    def cell(self, label: str, bits: int, metric: str) -> Cell | None:
        """Return what stands in a cell; None where nothing was run."""
        scale = 100 if metric in PERCENT_METRICS else 1
        found = self.select(label, bits)
        values = [scale * r.metrics[metric] for r in found if isinstance(r.metrics.get(metric), float)]
        if not values:
            return None
        first = found[0]
        judged_by_paper = first.protocol["eval_on"] == "test"
        row = paper_row(first.trial)
        paper = paper_value(first.data["name"], first.protocol["protocol"], metric, row, bits) if judged_by_paper else None
        return Cell(mean(values), stdev(values) if len(values) > 1 else None, len(values), paper)

    def best(self, bits: int, metric: str, rows: Sequence[str] | None = None) -> float | None:
        """Return the best mean of a column, of some rows or all; of an error, the least. Of one row there is no best."""
        rows = self.rows_with(metric) if rows is None else rows
        means = [cell.mean for row in rows if (cell := self.cell(row, bits, metric))]
        return (max if metric in PERCENT_METRICS else min)(means) if means and len(rows) > 1 else None


def paper_row(trial: dict[str, Any]) -> str:
    """Return what the paper would call a trial: the joint loss is a row of its own, and other losses are not the paper's."""
    settings = trial["settings"]
    other = f":loss={settings['loss']}" if settings.get("loss", "softmax") != "softmax" else ""
    return f"{trial['method']}{'+triplet' if settings.get('triplet') else ''}{other}"


def compare(records: Iterable[Record]) -> list[Comparison]:
    """Put records into comparisons, by all that must be the same."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        facts = [record.data, record.protocol["protocol"], record.protocol["version"], record.protocol["eval_on"]]
        groups.setdefault(repr(facts), []).append(record)
    return sorted((Comparison(tuple(group)) for group in groups.values()), key=lambda comparison: comparison.title)
