"""Batches with several samples of each class, for a `DataLoader`."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike
from torch.utils.data import Sampler

from proxyhash.training.samplers import class_balanced_batches, count_balanced_batches
from proxyhash.utils.random import generator
from proxyhash.utils.validation import check_int


class ClassBalancedBatchSampler(Sampler[list[int]]):
    """Batches of batch_size / samples_per_class classes with `samples_per_class` samples each, drawn anew in every epoch.

    Losses of pairs and triplets need similar samples in a batch. A class with fewer samples repeats them. An epoch holds
    every sample about once: fewer samples than a batch, drawn at random, are left out. The batches are a function of the
    seed and the epoch, and the ones that `proxyhash train` uses.

    Parameters
    ----------
    labels
        The class of each sample of the data set (N,), integers or names.
    batch_size
        A multiple of `samples_per_class`.
    samples_per_class
        At least 2.
    seed
        Decides every random draw.

    Raises
    ------
    InputError
        For a batch size that is no multiple, labels with several axes, and too few samples for a batch.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from proxyhash import ClassBalancedBatchSampler
    >>> labels = torch.arange(100) % 10
    >>> data = TensorDataset(torch.zeros(100, 4), labels)
    >>> loader = DataLoader(data, batch_sampler=ClassBalancedBatchSampler(labels, batch_size=20, samples_per_class=5))
    >>> len(loader), [sorted(y.unique(return_counts=True)[1].tolist()) for _, y in loader][0]
    (5, [5, 5, 5, 5])
    """

    def __init__(self, labels: ArrayLike, batch_size: int, samples_per_class: int = 4, *, seed: int = 0) -> None:
        self.labels = np.asarray(labels)
        self.batch_size, self.samples_per_class = batch_size, samples_per_class
        self.seed, self.epoch = check_int("seed", seed, 0), 0
        self._batches = count_balanced_batches(self.labels, batch_size, samples_per_class)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, such as to resume a training; iterations count on from there."""
        self.epoch = check_int("epoch", epoch, 0)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self._batches

    def __iter__(self) -> Iterator[list[int]]:
        """Iterate over the batches of an epoch as lists of indices."""
        random = generator(self.seed, "batches", self.epoch)
        self.epoch += 1
        for batch in class_balanced_batches(self.labels, self.batch_size, self.samples_per_class, random):
            yield batch.tolist()
