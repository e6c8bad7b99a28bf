"""Training of a head on features without labels."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxyhash.methods.base import MethodSettings, TrainingData
from proxyhash.models.heads import Head, HeadConfig
from proxyhash.utils.errors import InputError
from proxyhash.utils.random import generator
from proxyhash.utils.validation import check_int

MAX_VALUES = 1 << 26  # of the features that are learned from: 256 MB, or 52,429 rows of 1,280 values
MIN_ROWS = 1024

Loss = Callable[[Head, Tensor], Tensor]
"""Return the loss of a head on a batch of features (N, width)."""


@dataclass(frozen=True)
class FeatureTrainingSettings(MethodSettings):
    """Settings of a method that trains a head on features: AdamW, whose learning rate falls to zero by a cosine.

    Steps are counted instead of epochs, so that the time does not depend on the number of images.
    """

    steps: int = 1_000
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the ranges of all values."""
        check_int("steps", self.steps, 1)
        check_int("batch_size", self.batch_size, 2)
        check_range("lr", self.lr, above=True)
        check_range("weight_decay", self.weight_decay)


def check_range(name: str, value: float, *, above: bool = False) -> None:
    """Raise an `InputError` unless a setting is finite, and at least 0 or `above` it."""
    if not (value > 0 if above else value >= 0) or math.isinf(value):
        raise InputError(f"{name} must be {'above 0' if above else '0 or above'}, not {value}.")


def load_sample(data: TrainingData) -> Tensor:
    """Return the features (n, width) that are learned from: all, or a random sample of `MAX_VALUES` values."""
    features = data.load_features()
    count = max(MAX_VALUES // features.shape[1], MIN_ROWS)
    rows: slice | NDArray[np.int64] = slice(0, len(features))
    if len(features) > count:
        rows = np.sort(generator(data.seed, "feature-rows").choice(len(features), count, replace=False))
    return torch.from_numpy(np.array(features[rows], np.float32))  # a copy: torch takes no array that is read-only


def train_head(
    title: str,
    data: TrainingData,
    features: Tensor,
    settings: FeatureTrainingSettings,
    build: Callable[[HeadConfig], Head],
    loss: Loss,
    hidden_dim: int = 0,
) -> Head:
    """Train a head on features and return it in evaluation mode.

    Parameters
    ----------
    title
        The name of the method in messages.
    data
        The length of the codes, the seed, and where progress is reported.
    features
        Features (n, width), in memory.
    settings
        The number of steps, the size of a batch and the optimizer.
    build
        Return the head of a configuration.
    loss
        The loss of the head on a batch of features.
    hidden_dim
        Units of the hidden layer; 0 for none.

    Raises
    ------
    InputError
        If weights are not finite in the end.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(data.seed)
        head = build(HeadConfig(features.shape[1], data.bits, hidden_dim)).train()
    optimizer = torch.optim.AdamW(head.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    batches = random_batches(len(features), settings.batch_size, generator(data.seed, "feature-batches"))
    for step, batch in enumerate(islice(batches, settings.steps)):
        data.progress(f"training {title}", step / settings.steps)
        optimizer.zero_grad()
        loss(head, features[torch.from_numpy(batch)]).backward()
        optimizer.step()
        schedule.step()
    data.progress(f"training {title}", 1.0)
    if not all(torch.isfinite(tensor).all() for tensor in head.state_dict().values()):
        raise InputError(f"The weights of {title} are not finite after {settings.steps} steps; choose a smaller lr.")
    return head.requires_grad_(False).eval()


def random_batches(count: int, size: int, random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield batches of row numbers without end, every row once in each epoch; a batch has at least `size` of many rows."""
    while True:
        yield from np.array_split(random.permutation(count), max(1, count // size))


class NoiseViews:
    """Views of features: x + a s e, where s is the standard deviation of each feature and e is drawn from N(0, 1).

    Parameters
    ----------
    features
        Features (n, width), which s is computed from.
    noise
        a.
    seed
        Decides all draws.
    """

    def __init__(self, features: Tensor, noise: float, seed: int) -> None:
        self._scale = noise * features.std(0, correction=0)
        self._random = torch.Generator().manual_seed(int(generator(seed, "feature-noise").integers(1 << 62)))

    def draw(self, batch: Tensor) -> Tensor:
        """Return a view of a batch (N, width)."""
        return batch + self._scale * torch.randn(batch.shape, generator=self._random)
