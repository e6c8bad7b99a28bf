"""Precision among the first K items on unseen classes, as in the paper's figure.

Shown in docs/results.md.

python docs/figures/precision_unseen.py [OUTPUT]
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from proxyhash.experiments import read_records
from proxyhash.report import compare
from proxyhash.report.figures import paper_precision_rows, plot_precision

RESULTS = Path(__file__).parents[2] / "results" / "unseen"


def picture() -> Figure:
    """Return precision at 16, 32 and 64 bits; the paper shows 32."""
    (comparison,) = compare(read_records(RESULTS))
    rows = paper_precision_rows(comparison)
    lengths = comparison.code_lengths
    figure = Figure(figsize=(3.2 * len(lengths), 3.6), layout="constrained")
    panels = figure.subplots(1, len(lengths), sharey=True)
    for axes, bits in zip(panels, lengths, strict=True):
        plot_precision(axes, comparison, bits, rows)
        for number, line in enumerate(axes.lines):
            line.set_color(f"C{number}")
        axes.set_title(f"{bits} bits", loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.label_outer()
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False, fontsize=9)
    return figure


if __name__ == "__main__":
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("precision-unseen.png")
    picture().savefig(output, dpi=110)
