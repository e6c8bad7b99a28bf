"""A cache of arrays that are slow to compute."""

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray


class ArrayCache:
    """The arrays used last, by key; each caller gets a copy, so that the cached array cannot change."""

    def __init__(self, max_size: int) -> None:
        self._arrays: LRUCache[Hashable, NDArray[np.floating[Any]]] = LRUCache(max_size)

    def get(self, key: Hashable, compute: Callable[[], NDArray[np.floating[Any]]]) -> NDArray[np.floating[Any]]:
        """Return the array of a key, computed if it is not in the cache."""
        if key not in self._arrays:
            self._arrays[key] = compute()
        return self._arrays[key].copy()

    def clear(self) -> None:
        """Empty the cache, for tests and benchmarks that must compute again."""
        self._arrays.clear()
