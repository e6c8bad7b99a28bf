"""Time and memory of shallow methods on a training set of the size of CIFAR-100.

python benchmarks/methods.py                    everything, some minutes on two cores
python benchmarks/methods.py --only fit         some of: fit, memory
"""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from proxyhash.labels import ClassLabels
from proxyhash.methods import TrainingData
from proxyhash.training.features import fit_method
from reporting import Row, options_of, run, timed

IMAGES, WIDTH, CLASSES, BITS = 50_000, 1_280, 100, 32
SETTINGS: dict[str, dict[str, Any]] = {  # tuned on CIFAR-100, and slower settings
    "itq": {},
    "itq-cca": {},
    "sdh": {"anchors": 3_000, "fit": 1e-3},
    "ksh": {},
    "ksh, 1,000 anchors, 200 steps": {"anchors": 1_000, "steps": 200},
}


def training_data(images: int) -> TrainingData:
    """Return features around one center per class, with the size of CIFAR-100."""
    random = np.random.default_rng(0)
    labels = np.arange(images) % CLASSES
    centers = random.standard_normal((CLASSES, WIDTH), dtype=np.float32)
    features = random.standard_normal((images, WIDTH), dtype=np.float32)
    features += centers[labels]
    return TrainingData(BITS, features, ClassLabels(labels, tuple(map(str, range(CLASSES)))))


def fit_rows() -> Iterator[Row]:
    data = training_data(IMAGES)
    _, limit = timed(lambda: data.load_features().T @ data.load_features())  # one product of this size, for comparison
    for title, settings in SETTINGS.items():
        _, seconds = timed(fit_method, title.partition(",")[0], data, **settings)
        note = f"{seconds / limit:,.0f} times the covariance matrix"
        yield Row(f"{title}, {IMAGES:,} x {WIDTH:,}, {BITS} bits: s", seconds, "< 60", seconds < 60, seconds, note=note)


def memory_rows() -> Iterator[Row]:
    spawn = multiprocessing.get_context("spawn")
    pairs = 4 * IMAGES**2 / 1e9
    for title in ("itq", "itq-cca", "sdh", "ksh"):
        with spawn.Pool(1) as pool:  # a separate process, to measure its peak memory
            peak, seconds = pool.apply(_peak, (title, IMAGES, SETTINGS[title]))
        note = f"features are {4 * IMAGES * WIDTH / 1e9:.2f} GB, a number for each pair would be {pairs:.0f} GB"
        yield Row(f"{title}, {IMAGES:,} x {WIDTH:,}: GB at peak", peak, "< 2.5", peak < 2.5, seconds, note=note)


def _peak(method: str, images: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Return the peak memory of a fit in GB, including the features, and its seconds."""
    _, seconds = timed(fit_method, method, training_data(images), **settings)
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e9, seconds  # getrusage would include the parent process


if __name__ == "__main__":
    parts = {"fit": fit_rows, "memory": memory_rows}
    run("Shallow methods", parts, options_of(__doc__, list(parts)))
