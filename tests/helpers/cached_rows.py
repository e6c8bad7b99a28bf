"""Entries of the cache with rows of digits, as training writes them."""

from pathlib import Path

import numpy as np

from proxyhash.data import load_dataset
from proxyhash.data.transforms import get_transform
from proxyhash.models.onnx_backend import Floats
from proxyhash.models.row_cache import RowCache
from proxyhash.utils.progress import Progress, no_progress

KEY = "0123456789abcdef"
FEATURES = f"digits-convnet-8-{KEY}"
ACTIVATIONS = f"digits-convnet-8-upper1-{KEY[::-1]}"
IMAGES = 100


def rows_of(root: Path, kind: str = "features", name: str = FEATURES) -> RowCache:
    """Return an entry below the root of a cache."""
    shape, dtype = ((IMAGES, 4), "float32") if kind == "features" else ((IMAGES, 2, 2, 1), "float16")
    return RowCache(root / kind / name, kind, shape, dtype)


def fill(rows: RowCache, progress: Progress = no_progress) -> None:
    """Fill an entry by a function in place of a network."""

    def backend(pixels: Floats) -> Floats:
        return np.full((len(pixels), *rows.shape[1:]), 0.5, np.float32)

    digits = load_dataset("digits").subset(np.arange(IMAGES))
    rows.fill(digits, backend, get_transform("small", 8), "extracting", progress)


class StoppedError(Exception):
    """A stop in the middle of an extraction."""


def interrupt(rows: RowCache) -> None:
    """Stop filling an entry after the first batches, as a signal does."""

    def stop(_: str, fraction: float) -> None:
        if fraction > 0.5:
            raise StoppedError

    try:
        fill(rows, stop)
    except StoppedError:
        return
    raise AssertionError("the extraction was not stopped")
