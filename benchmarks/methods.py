"""How long the shallow systems take to fit a training set of CIFAR-100's size, and how their memory grows with it.

python benchmarks/methods.py                    everything, some minutes on two cores
python benchmarks/methods.py --only fit         some of: fit, memory
"""

import multiprocessing
import resource
from collections.abc import Iterator
from typing import Any

import numpy as np

from proxyhash.methods import Lesson, fit_method
from reporting import Row, options_of, run, timed

IMAGES, WIDTH, CLASSES, BITS = 50_000, 1_280, 100, 32
SETTINGS: dict[str, dict[str, Any]] = {  # what tuning chose on CIFAR-100, and where that is more, the defaults too
    "itq": {},
    "itq-cca": {},
    "sdh": {"anchors": 3_000, "fit": 1e-3},
    "ksh": {},
    "ksh, 1,000 anchors, 200 steps": {"anchors": 1_000, "steps": 200},
}


def lesson(images: int) -> Lesson:
    """Return features around a centre for each class, as wide and as many as CIFAR-100's."""
    random = np.random.default_rng(0)
    labels = np.arange(images) % CLASSES
    centres = random.standard_normal((CLASSES, WIDTH), dtype=np.float32)
    features = random.standard_normal((images, WIDTH), dtype=np.float32)
    features += centres[labels]
    return Lesson(BITS, features, labels)


def fit_rows() -> Iterator[Row]:
    material = lesson(IMAGES)
    _, limit = timed(lambda: material.features.T @ material.features)  # what every one of them does at least once
    for title, settings in SETTINGS.items():
        _, seconds = timed(fit_method, title.partition(",")[0], material, **settings)
        note = f"{seconds / limit:,.0f} times the covariance matrix"
        yield Row(f"{title}, {IMAGES:,} x {WIDTH:,}, {BITS} bits: s", seconds, "< 60", seconds < 60, seconds, note=note)


def memory_rows() -> Iterator[Row]:
    spawn = multiprocessing.get_context("spawn")
    for title, settings in SETTINGS.items():
        peaks = []
        for images in (IMAGES // 4, IMAGES // 2, IMAGES):
            with spawn.Pool(1) as pool:  # a process of its own, so that its peak memory is its own
                peak, seconds = pool.apply(_peak, (title.partition(",")[0], images, settings))
            peaks.append(peak)
        ratio = (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])  # images double, and so should what they add; of pairs it is 4
        note = " / ".join(f"{peak:,.0f}" for peak in peaks) + " MB at a quarter, half and all"
        yield Row(f"{title}: growth of memory, last over first doubling", ratio, "< 2.5", ratio < 2.5, seconds, note=note)


def _peak(method: str, images: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Return the peak memory of a fit in MB, features and all, and its seconds."""
    _, seconds = timed(fit_method, method, lesson(images), **settings)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, seconds


if __name__ == "__main__":
    parts = {"fit": fit_rows, "memory": memory_rows}
    run("Shallow systems", parts, options_of(__doc__, list(parts)))
