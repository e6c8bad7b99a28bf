"""Figure of a comparison of encodings of vectors: recall by bytes per item."""

from pathlib import Path

from proxyhash.experiments.vectors import EncodingResult, VectorEvalReport
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FORMATS = (".png", ".svg", ".pdf")
_MARKERS = "osD^vP*Xdh<>"


def check_figure_path(path: Path) -> None:
    """Raise an `InputError` unless a figure can be written as this kind of file."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")


def draw_vectors(report: VectorEvalReport, path: Path) -> None:
    """Write a figure of recall@k by bytes per item, with a line for each encoding and a logarithmic axis of bytes."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    check_figure_path(path)
    k = report.main_k
    families: dict[str, list[EncodingResult]] = {}
    for row in report.rows:
        families.setdefault(row.name, []).append(row)
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for number, (name, rows) in enumerate(families.items()):
        sizes, recall = [row.bytes_per_item for row in rows], [row.recall[k] for row in rows]
        axes.plot(sizes, recall, label=name, color=f"C{number % 10}", marker=_MARKERS[number % len(_MARKERS)])
    axes.set_xscale("log", base=2)
    sizes = sorted({row.bytes_per_item for row in report.rows})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("bytes per item")
    axes.set_ylabel(f"recall@{k} of the exact neighbors")
    axes.set_ylim(0, 1.03)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{report.database:,} vectors of {report.width} values, {report.queries:,} queries", loc="left", size=10)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=150)
