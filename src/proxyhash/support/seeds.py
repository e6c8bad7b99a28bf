"""One seed, many independent random streams, each named after what it is for."""

import zlib

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the random stream of `seed` that belongs to `purpose`, e.g. `generator(0, "tammes", start)`.

    Naming the streams keeps one stage's draws out of another's way: the sets `tammes`, `aligned`, `hclm` and `shclm` of
    one seed are the same points at different stages, which is what an ablation must compare.
    """
    key = tuple(zlib.crc32(part.encode()) if isinstance(part, str) else part for part in purpose)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def permutation(count: int, seed: int, *purpose: str | int) -> NDArray[np.int64]:
    """Return 0 to count - 1 in an order that stays the same for ever: what is published must not depend on a version.

    NumPy promises the raw numbers of a bit generator, not what its methods (shuffle, choice) make of them; so raw numbers
    are drawn and sorted.
    """
    bits = generator(seed, *purpose).bit_generator
    keys = bits.random_raw(count)
    return np.argsort(keys, kind="stable").astype(np.int64)
