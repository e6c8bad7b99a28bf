"""The last few arrays that took seconds to compute, by what they depend on."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Remembered:
    """Keeps the `most` arrays that were asked for last; what it gives is a copy, so that nobody changes what is kept."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: OrderedDict[Hashable, NDArray[np.floating[Any]]] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], NDArray[np.floating[Any]]]) -> NDArray[np.floating[Any]]:
        """Return what is kept under a key, or compute it."""
        if key not in self._kept:
            self._kept[key] = compute()
        self._kept.move_to_end(key)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
        return self._kept[key].copy()

    def forget(self) -> None:
        """Keep nothing: whoever measures how long something takes, or whether it comes out the same, wants it computed."""
        self._kept.clear()
