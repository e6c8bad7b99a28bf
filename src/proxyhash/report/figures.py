"""Figures of a comparison: mAP, precision and recall, geometry of the proxies, histograms."""

import base64
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from proxyhash.experiments import Record
from proxyhash.report.comparison import Comparison, metric_value, paper_row
from proxyhash.report.export import metric_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Geometry = Callable[[Record], float | None]
_MAX_LINES = 12  # more colors cannot be told apart; the best rows are drawn
_PRECISION_BITS, _HISTOGRAM_BITS = 32, 64  # code lengths of the paper's figures
_PAPER_PRECISION_ROWS = ("hclm", "shclm", "triplet", "shclm+triplet")  # of the paper's figure of unseen classes
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "svg.hashsalt": "proxyhash",  # the same numbers give the same bytes
}


def draw_figures(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield the caption and the SVG image, as a data: URL, of each figure that has data.

    Curves are drawn at the code length nearest to the 32 bits of the paper's figure, histograms at that nearest to 64.
    """
    short, long = (_nearest_length(comparison, bits) for bits in (_PRECISION_BITS, _HISTOGRAM_BITS))
    drawn, unseen = _drawn_rows(comparison), paper_precision_rows(comparison)
    drawings: list[tuple[str, bool, Callable[[Axes], None]]] = [
        ("mAP by code length", len(comparison.code_lengths) > 1, lambda axes: _plot_map(axes, comparison)),
        (f"Precision by retrieved items, {short} bits", True, lambda axes: plot_precision(axes, comparison, short, drawn)),
        (
            f"Precision by retrieved items, unseen classes, {short} bits: the rows of the paper's figure",
            len(unseen) > 1,
            lambda axes: plot_precision(axes, comparison, short, unseen),
        ),
        (f"Precision by recall, {short} bits", True, lambda axes: _plot_precision_recall(axes, comparison, short)),
        (
            "Distance of each proxy to its nearest",
            _has_metric(comparison, "proxies"),
            lambda axes: _plot_margins(axes, comparison),
        ),
        (
            "mAP by the minimum distance of proxies",
            _has_geometry(comparison, _min_distance),
            lambda axes: _plot_against(axes, comparison, _min_distance, "minimum distance of proxies, % of the bits"),
        ),
        (
            "mAP by the correlation of class and proxy similarity",
            _has_geometry(comparison, _correlation),
            lambda axes: _plot_against(axes, comparison, _correlation, "correlation of class and proxy similarity"),
        ),
        (
            f"Binarization error of queries, {long} bits, of methods whose outputs are between -1 and 1",
            _has_metric(comparison, "binarization_histogram"),
            lambda axes: _plot_histogram(axes, comparison, long, "binarization_histogram", (0, 1), "mean of (|nu| - 1)^2"),
        ),
        (
            f"Weights of the proxies, {long} bits; learned proxies, of any norm, are scaled to √d, the norm of the others",
            _has_metric(comparison, "proxy_histogram"),
            lambda axes: _plot_histogram(axes, comparison, long, "proxy_histogram", (-2, 2), "weight"),
        ),
    ]
    for caption, has_data, draw in drawings:
        if has_data:
            yield caption, _svg_url(draw)


def _nearest_length(comparison: Comparison, bits: int) -> int:
    return min(comparison.code_lengths, key=lambda length: abs(length - bits))


def _svg_url(draw: "Callable[[Axes], None]") -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(5.6, 4.3), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        columns = max(1, min(4, 96 // (7 + max(map(len, labels), default=0))))  # as many columns as fit
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode()


def _has_metric(comparison: Comparison, name: str) -> bool:
    return any(record.metrics.get(name) is not None for record in comparison.records)


def _drawn_rows(comparison: Comparison) -> list[str]:
    """Return the rows to draw, the best first."""
    return list(comparison.rows)[::-1][:_MAX_LINES]


def _color(comparison: Comparison, label: str) -> tuple[float, float, float, float]:
    """Return the color of a row: ten strong colors for the best ten, ten pale ones for the next."""
    from matplotlib import colormaps

    rank = list(comparison.rows)[::-1].index(label) % 20
    return colormaps["tab20"](2 * (rank % 10) + rank // 10)


def _plot_map(axes: "Axes", comparison: Comparison) -> None:
    for label in _drawn_rows(comparison):
        cells = [(bits, comparison.cell(label, bits, comparison.main_metric)) for bits in comparison.code_lengths]
        points = [(bits, cell.mean, cell.std or 0.0) for bits, cell in cells if cell]
        if not points:
            continue
        bits, means, spreads = zip(*points, strict=True)
        color = _color(comparison, label)
        axes.errorbar(bits, means, spreads, marker="o", markersize=4, capsize=2, label=label, color=color)
    axes.set_xscale("log", base=2)
    axes.set_xticks(comparison.code_lengths, [str(bits) for bits in comparison.code_lengths])
    axes.set(xlabel="bits", ylabel=metric_title(comparison.main_metric))


def paper_precision_rows(comparison: Comparison) -> list[str]:
    """Return the rows of the paper's figure of precision, the best first; none unless training saw no class of the database.

    They are HCLM, sHCLM, the triplet loss, and sHCLM with it, in all settings.
    """
    if not _has_metric(comparison, "classification"):
        return []
    rows = {label: paper_row(records[0].trial) for label, records in comparison.rows.items()}
    return [label for label in reversed(rows) if rows[label] in _PAPER_PRECISION_ROWS]


def plot_precision(axes: "Axes", comparison: Comparison, bits: int, rows: Iterable[str]) -> None:
    """Draw precision among the first K items of some rows; K is on a logarithmic scale, which shows the first ones."""
    for label in rows:
        curves = [_precisions(record.metrics["all"]) for record in comparison.select(label, bits)]
        if curves:
            items = sorted(curves[0])
            means = [100 * mean(curve[k] for curve in curves) for k in items]
            axes.plot(items, means, label=label, color=_color(comparison, label))
    axes.set(xlabel="items retrieved", ylabel="precision, %", xscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _precisions(metrics: dict[str, float]) -> dict[int, float]:
    """Return precision by number of items, from names such as `precision@10 [ties expected]`."""
    named = ((name.partition("@")[2].partition(" ")[0], value) for name, value in metrics.items() if "precision@" in name)
    return {int(items): value for items, value in named}


def _plot_precision_recall(axes: "Axes", comparison: Comparison, bits: int) -> None:
    for label in _drawn_rows(comparison):
        curves = [r.metrics["precision_recall"] for r in comparison.select(label, bits) if "precision_recall" in r.metrics]
        if curves:
            recall, precision = (np.mean([curve[name] for curve in curves], 0) for name in ("recall", "precision"))
            axes.plot(100 * recall, 100 * precision, label=label, color=_color(comparison, label))
    axes.set(xlabel="recall, %", ylabel="precision, %", xlim=(0, 100), ylim=(0, 102))


def _plot_margins(axes: "Axes", comparison: Comparison) -> None:
    fixed = {label for label, found in comparison.rows.items() if any(record.metrics.get("proxies") for record in found)}
    labels = [label for label in _drawn_rows(comparison) if label in fixed]
    width = 0.8 / len(labels)
    for number, label in enumerate(labels):
        for place, bits in enumerate(comparison.code_lengths):
            found = [
                r.metrics["proxies"]["nearest_mean"] for r in comparison.select(label, bits) if r.metrics.get("proxies")
            ]
            if found:
                name = label if place == 0 else "_"
                at = place + (number - (len(labels) - 1) / 2) * width
                axes.bar(at, 100 * mean(found) / bits, width, color=_color(comparison, label), label=name)
    axes.set_xticks(range(len(comparison.code_lengths)), [str(bits) for bits in comparison.code_lengths])
    axes.set(xlabel="bits", ylabel="distance to the nearest class, % of the bits")


def _min_distance(record: Record) -> float | None:
    """Return the smallest distance of two proxies in percent of the bits."""
    proxies = record.metrics.get("proxies")
    return 100 * proxies["min_distance"] / record.bits if proxies else None


def _correlation(record: Record) -> float | None:
    """Return the correlation of the proxies' inner products with the similarity of their classes, where it is known."""
    proxies = record.metrics.get("proxies")
    return proxies["assignment"]["correlation"] if proxies and proxies["assignment"] else None


def _has_geometry(comparison: Comparison, geometry: Geometry) -> bool:
    """Return whether at least three rows have a value; fewer show no relation."""
    return sum(any(geometry(record) is not None for record in found) for found in comparison.rows.values()) > 2


def _plot_against(axes: "Axes", comparison: Comparison, geometry: Geometry, what: str) -> None:
    """Draw a point for each row and code length; each length has its own marker."""
    for bits, shape in zip(comparison.code_lengths, cycle("os^DvP"), strict=False):
        points = []
        for label in comparison.rows:
            pairs = [(geometry(r), metric_value(r, comparison.main_metric)) for r in comparison.select(label, bits)]
            found = [(value, score) for value, score in pairs if value is not None and score is not None]
            if found:
                across, up = (mean(numbers) for numbers in zip(*found, strict=True))
                points.append((across, 100 * up))
                name = label if bits == comparison.code_lengths[0] else "_"
                axes.plot(across, 100 * up, shape, color=_color(comparison, label), label=name)
        if points:
            axes.annotate(f"{bits} bits", max(points), (7, 0), textcoords="offset points", va="center", fontsize=8)
    axes.margins(x=0.12)
    axes.set(xlabel=what, ylabel=metric_title(comparison.main_metric))


def _plot_histogram(
    axes: "Axes", comparison: Comparison, bits: int, name: str, span: tuple[float, float], what: str
) -> None:
    for label in _drawn_rows(comparison):
        found = [r.metrics[name] for r in comparison.select(label, bits) if r.metrics.get(name)]
        if found:
            counts = np.mean(found, 0)
            edges = np.linspace(*span, len(counts) + 1)
            axes.stairs(100 * counts / counts.sum(), edges, label=label, color=_color(comparison, label), linewidth=1.5)
    axes.set(xlabel=what, ylabel="share, %")
