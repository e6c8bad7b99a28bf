"""Four classes in two bits, twice: equally good for classification, and only once good for hashing (docs/idea.md).

python docs/figures/rotation.py [OUTPUT]
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from proxyhash.codes import pack
from proxyhash.evaluation import mean_average_precision
from proxyhash.utils.random import generator

Floats = NDArray[np.float64]

COLORS = ("#0b6e99", "#c0392b", "#1a7f4b", "#8e5ea2")
CORNERS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], float)
IMAGES = 40  # of each class
SPREAD = 0.22  # of the embeddings around their proxy


def embeddings() -> tuple[Floats, NDArray[np.int64]]:
    """Return nu (N, 2) around the four corners, and their classes (N,)."""
    classes = np.repeat(np.arange(4), IMAGES)
    return CORNERS[classes] + generator(0, "rotation").normal(0, SPREAD, (len(classes), 2)), classes


def rotation(degrees: float) -> Floats:
    """Return the matrix that turns by so many degrees."""
    angle = np.deg2rad(degrees)
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def cross_entropy(nu: Floats, proxies: Floats, classes: NDArray[np.int64]) -> float:
    """Return the mean of -log softmax(w.nu) of the right class."""
    logits = nu @ proxies.T
    return float((np.log(np.exp(logits).sum(1)) - logits[np.arange(len(nu)), classes]).mean())


def map_of_codes(nu: Floats, classes: NDArray[np.int64]) -> float:
    """Return the mAP when every image searches all of them by the signs of nu."""
    codes = pack(nu >= 0)
    return mean_average_precision(codes, classes, codes, classes).value


def draw(path: Path) -> dict[str, tuple[float, float]]:
    """Draw both, and return the cross-entropy and the mAP of each."""
    nu, classes = embeddings()
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    numbers = {}
    for axes, degrees, name in zip(figure.subplots(1, 2), (0, 40), ("at the corners", "turned by 40 degrees"), strict=True):
        turn = rotation(degrees).T
        points, proxies = nu @ turn, CORNERS @ turn
        numbers[name] = cross_entropy(points, proxies, classes), map_of_codes(points, classes)
        for kind, color in enumerate(COLORS):
            own = points[classes == kind]
            axes.scatter(own[:, 0], own[:, 1], 14, color, alpha=0.55, linewidths=0)
            axes.annotate("", proxies[kind], (0, 0), arrowprops={"arrowstyle": "-|>", "color": color, "lw": 2.2})
        axes.axhline(0, color="#1b1f24", lw=1)
        axes.axvline(0, color="#1b1f24", lw=1)
        for place, bits in (((1.75, 1.75), "11"), ((-1.75, 1.75), "01"), ((-1.75, -1.75), "00"), ((1.75, -1.75), "10")):
            axes.text(*place, bits, ha="center", va="center", color="#66707a", family="monospace", fontsize=13)
        loss, found = numbers[name]
        axes.set_title(f"{name}\ncross-entropy {loss:.3f}, mAP of the codes {found:.2f}", fontsize=11)
        axes.set(xlim=(-2.05, 2.05), ylim=(-2.05, 2.05), aspect="equal", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.savefig(path, dpi=150)
    return numbers


if __name__ == "__main__":
    for name, (loss, found) in draw(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/figures/rotation.png")).items():
        print(f"{name}: cross-entropy {loss:.3f}, mAP {found:.3f}")
