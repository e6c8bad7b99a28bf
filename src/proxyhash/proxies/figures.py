"""Figure of a proxy set: its distance matrix and its margins."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proxyhash.proxies.geometry import Floats, cosine_blocks
from proxyhash.proxies.proxy_set import ProxySet
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLASSES_DRAWN = 1_000  # about as many as a screen has pixels
_NAMES_DRAWN = 30
_FORMATS = (".png", ".pdf", ".svg")


def save_figure(proxies: ProxySet, path: str | Path, names: Sequence[str] | None = None) -> None:
    """Draw a proxy set and write the figure to `path` (.png, .pdf or .svg), atomically."""
    check_figure_path(path)
    with atomic_write(Path(path)) as temporary:
        draw_proxies(proxies, names).savefig(temporary, dpi=150)


def check_figure_path(path: str | Path) -> Path:
    """Return `path` if figures can be written in its format."""
    if Path(path).suffix.lower() not in _FORMATS:
        raise InputError(f"Cannot draw to {path}: its name must end in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}.")
    return Path(path)


def draw_proxies(proxies: ProxySet, names: Sequence[str] | None = None) -> "Figure":
    """Return a figure with the distance matrix and the histogram of margins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.8), layout="constrained")
    figure.suptitle(proxies.title)
    left, right = figure.subplots(1, 2)
    _draw_distances(left, proxies, names)
    _draw_margins(right, proxies)
    return figure


def _draw_distances(axes: "Axes", proxies: ProxySet, names: Sequence[str] | None) -> None:
    from matplotlib.ticker import MaxNLocator

    shown = min(proxies.classes, _CLASSES_DRAWN)
    distances = pair_distances(proxies.weights[:shown])
    np.fill_diagonal(distances, np.nan)
    image = axes.imshow(distances, cmap="viridis", interpolation="nearest")
    note = "" if shown == proxies.classes else f", first {shown:,} of {proxies.classes:,} classes"
    axes.set(title=f"Distance between classes{note}", xlabel="class", ylabel="class")
    if axes.figure is not None:
        ticks = MaxNLocator(integer=proxies.binary)
        axes.figure.colorbar(image, ax=axes, label="bits", shrink=0.85, ticks=ticks)
    if shown <= _NAMES_DRAWN:
        labels = list(names) if names else [str(index) for index in range(shown)]
        axes.set_xticks(range(shown), labels, rotation=0 if max(map(len, labels)) <= 2 else 90)
        axes.set_yticks(range(shown), labels)


def _draw_margins(axes: "Axes", proxies: ProxySet) -> None:
    q = proxies.quality
    sample = proxies.weights[:_CLASSES_DRAWN]
    pairs = pair_distances(sample)[np.triu_indices(len(sample), k=1)]
    low, high = min(pairs.min(), q.nearest_min), max(pairs.max(), q.distance_bound)
    bins = (
        np.arange(np.floor(low) - 0.5, np.ceil(high) + 1.5) if proxies.binary else np.linspace(low - 0.01, high + 0.01, 60)
    )
    colors, labels = ["#9aa5b1", "#1f6f8b"], ["any two classes", "a class and its nearest other"]
    axes.hist([pairs, q.nearest_distance], bins=list(bins), density=True, color=colors, label=labels)
    axes.axvline(q.distance_bound, color="#c1432e", linestyle="--", label=f"bound on the minimum ({q.distance_bound:.4g})")
    axes.set(title="Margins", xlabel="distance in bits", ylabel="share of pairs, or of classes, per bit")
    axes.margins(y=0.35)  # room for the legend above the bars
    axes.legend(loc="upper right", framealpha=1, edgecolor="none")


def pair_distances(weights: Floats) -> Floats:
    """Return d (1 - cos) / 2 between all rows of `weights` (C, d), as (C, C)."""
    cosines = np.concatenate([block for _, block in cosine_blocks(weights.astype(np.float64))])
    distances: Floats = weights.shape[1] * (1 - np.clip(cosines, -1, 1)) / 2
    return distances
