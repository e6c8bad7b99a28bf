"""What one training method adds to the shared backbone, head, loop and schedule."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.models.heads import HashHead, Head, HeadConfig
from proxyhash.proxies import ProxySet
from proxyhash.utils.progress import Progress, no_progress


@dataclass(frozen=True)
class Task:
    """What a method is told of the images it will learn from: classes `labels` (n,), or `tags` (n, T), of n images.

    `features` gives q(x) (n, width) before training, for methods that look at them; it may take time. `finetunes` says that
    the backbone learns too.
    """

    bits: int
    names: tuple[str, ...]
    labels: NDArray[np.int64] | None = None
    tags: NDArray[np.bool_] | None = None
    features: Callable[[], NDArray[np.float32]] | None = None
    seed: int = 0
    progress: Progress = field(default=no_progress, repr=False)
    finetunes: bool = False

    def indicator(self) -> NDArray[np.float32]:
        """Return which image has which class or tag, (n, C) of 0 and 1."""
        if self.tags is not None:
            return self.tags.astype(np.float32)
        assert self.labels is not None
        return np.eye(len(self.names), dtype=np.float32)[self.labels]


class Objective(nn.Module, ABC):
    """A loss with what belongs to it: learned parameters, a head if it needs its own, a step between epochs.

    A new method is a subclass in one file, registered with `@objective`. Its parameters are trained with the network's.
    """

    per_class = 0  # images of one class that a batch should hold; 0: batches are drawn without regard to classes

    def head(self, shape: HeadConfig) -> Head:
        """Return the head that turns features (N, width) into nu (N, bits), or into other outputs that code for images."""
        return HashHead(shape)

    @abstractmethod
    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a batch: `nu` (N, bits), classes (N,) or tags (N, T), and the numbers of its images (N,)."""

    def after_epoch(self, embed: Callable[[], Tensor], head: Head) -> None:
        """Do what is done between epochs; by default nothing.

        `embed()` gives nu (n, bits) of all training images; `head` may be told what it needs to code (weights, codebooks).
        """

    def scores(self, nu: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return how well each class or tag fits (N, C), or None if the method does not classify."""
        return None

    def training_codes(self) -> Tensor | None:
        """Return codes (n, bits) of the training images if the method learns them apart from its network, or None."""
        return None

    def proxies(self) -> ProxySet | None:
        """Return the proxies, if the method has any."""
        return None
