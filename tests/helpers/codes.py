"""Codes that cluster, for the tests of the index."""

import numpy as np

from proxyhash.codes.bits import Packed


def clustered_codes(count: int, width: int, seed: int, centroids: int = 20, flips: float = 0.06) -> Packed:
    """Return packed codes around random centroids, which do not depend on the seed."""
    random = np.random.default_rng(seed)
    middle = np.random.default_rng(99).integers(0, 256, (centroids, width), dtype=np.uint8)
    noise = np.packbits(random.random((count, 8 * width)) < flips, axis=1)
    return middle[random.integers(0, centroids, count)] ^ noise


def make_keys(count: int, first: int = 0) -> list[str]:
    return [f"item/{number:05d}" for number in range(first, first + count)]
