"""What a method on features learns from, and what it gives."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from proxyhash.utils.progress import Progress, no_progress


@dataclass(frozen=True)
class Lesson:
    """What a shallow method learns from: features (N, width), and classes (N,) or tags (N, T) if there are any."""

    bits: int
    features: NDArray[np.float32]
    labels: NDArray[np.int64] | None = None
    tags: NDArray[np.bool_] | None = None
    seed: int = 0
    progress: Progress = field(default=no_progress, repr=False)

    def indicator(self) -> NDArray[np.float64]:
        """Return which image has which class or tag, (N, C) of 0 and 1."""
        if self.labels is not None:
            return np.eye(int(self.labels.max()) + 1)[self.labels]
        assert self.tags is not None  # `fit_method` has checked
        return self.tags.astype(np.float64)


class Encoder(Protocol):
    """What every fit gives: features (N, width) in, packed codes out, and what a query is compared with them by.

    However it searches, `mean_average_precision(encoder.queries(q), q_labels, encoder.encode(db), db_labels)` is its mAP.
    """

    @property
    def method(self) -> str:
        """Return the name of what fitted it."""
        ...

    @property
    def bits(self) -> int:
        """Return the length of its codes."""
        ...

    @property
    def searches(self) -> str:
        """Return how its codes are compared: "Hamming" or, by tables, something else."""
        ...

    def embed(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the values that codes are made of: (N, bits), whose signs are the codes, if it searches by Hamming."""
        ...

    def encode(self, features: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        ...

    def queries(self, features: NDArray[np.float32]) -> NDArray[np.uint8] | NDArray[np.float32]:
        """Return what is compared with codes: packed codes (Q, bytes), or tables (Q, M, k) as `codes.adc` has them."""
        ...

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        ...
