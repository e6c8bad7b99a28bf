"""Independent named random streams of one seed."""

import zlib

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the random stream of `seed` that belongs to `purpose`, e.g. `generator(0, "tammes", start)`.

    Draws of one stage do not change those of another: the sets `tammes`, `aligned`, `hclm` and `shclm` of one seed are
    the same points at different stages, so an ablation compares only the stages.
    """
    key = tuple(zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def permutation(count: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    """Return 0 to count - 1 in an order that no version of NumPy changes: published splits depend on it.

    NumPy guarantees the raw numbers of a bit generator, but not the results of shuffle and choice, so raw numbers are
    drawn and sorted.
    """
    bits = generator(seed, *purpose).bit_generator
    keys = bits.random_raw(count)
    return np.argsort(keys, kind="stable").astype(np.int64)
