"""Retrieval of seen and unseen classes against how far apart proxies are, and how well they follow meaning.

Shown in docs/results.md.

python docs/figures/open_question.py [OUTPUT]
"""

import sys
from pathlib import Path
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxyhash.experiments import Record, read_records

RESULTS = Path(__file__).parents[2] / "results"
ROWS = (
    "hclm",
    "code",
    "shclm",
    "scode",
    "joint:distance_share=0.9",
    "joint:distance_share=0.75",
    "joint:distance_share=0.5",
)
COLORS = ("#9aa5ab", "#54646d", "#c0392b", "#e08e45", "#a9cce3", "#5499c7", "#154f7a")
SHAPES = {16: "o", 32: "s", 64: "^"}


def distance(record: Record) -> float:
    """Return the smallest distance of two proxies in percent of the bits."""
    return float(100 * record.metrics["proxies"]["min_distance"] / record.bits)


def correlation(record: Record) -> float | None:
    """Return that of proxies' inner products and class similarity; kinds that were not told it have none."""
    assignment = record.metrics["proxies"]["assignment"]
    return None if assignment is None else float(assignment["correlation"])


def draw(axes: Axes, records: list[Record], across: str, title: str) -> None:
    """Draw a point for each kind and length, the mean over seeds or rounds."""
    for bits, shape in SHAPES.items():
        for row, color in zip(ROWS, COLORS, strict=True):
            found = [record for record in records if (record.trial["label"], record.bits) == (row, bits)]
            values = [distance(r) if across == "distance" else correlation(r) for r in found]
            known = [value for value in values if value is not None]
            if known:
                name = row.replace("joint:distance_share=", "joint, distance share ") if bits == 16 else "_"
                up = 100 * mean(record.metrics["map"] for record in found)
                axes.plot(mean(known), up, shape, color=color, markersize=8, label=name)
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def picture() -> Figure:
    """Return seen classes above unseen ones, against distance on the left and against correlation on the right."""
    seen = [record for record in read_records(RESULTS / "cifar100") if record.trial["label"] in ROWS]
    unseen = [record for record in read_records(RESULTS / "transfer") if record.trial["label"] in ROWS]
    figure = Figure(figsize=(9, 7.4), layout="constrained")
    axes = figure.subplots(2, 2, sharex="col", sharey="row")
    for line, (records, name) in zip(axes, ((seen, "seen classes"), (unseen, "unseen classes")), strict=True):
        draw(line[0], records, "distance", f"{name}, against distance")
        draw(line[1], records, "correlation", f"{name}, against meaning")
        line[0].set_ylabel("mAP, %")
    axes[1, 0].set_xlabel("smallest distance of two proxies, % of the bits")
    axes[1, 1].set_xlabel("correlation of class and proxy similarity")
    handles, names = axes[0, 0].get_legend_handles_labels()
    lengths = [axes[0, 0].plot([], [], shape, color="black", label=f"{bits} bits")[0] for bits, shape in SHAPES.items()]
    labels = [*names, *(f"{bits} bits" for bits in SHAPES)]
    figure.legend([*handles, *lengths], labels, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("open-question.png")
    picture().savefig(output, dpi=110)
