"""Assignment of proxies to classes anew, from what the network has learned so far."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from proxyhash.labels import Labels
from proxyhash.models.heads import Head
from proxyhash.proxies import class_mean_similarity
from proxyhash.proxies.assignment import assign, gain
from proxyhash.utils.errors import InputError

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

TOLERANCE = 1e-9  # gains that differ by less, relative to the sum of similarities, are equal


def reassign(similarity: Doubles, weights: Floats, solver: str, seed: int) -> Floats:
    """Return the rows of `weights` (C, d), assigned to the classes by their similarity (C, C).

    Without a gain the rows stay as they are, so that equidistant proxies do not change places.
    """
    order = assign(similarity, weights, solver=solver, start=np.arange(len(weights)), seed=seed)
    least = gain(similarity, weights) + TOLERANCE * float(np.abs(similarity).sum())
    return weights[order] if gain(similarity, weights, order) > least else weights


def similarity_of_embeddings(embed: Callable[[], Tensor], labels: Labels) -> Doubles:
    """Return eq. (similarity) (C, C) of the class means of embeddings."""
    sums = _ClassSums(labels)
    sums.add(embed())
    return sums.similarity()


def similarity_of_features(embed: Callable[[], Tensor], head: Head, labels: Labels) -> Doubles:
    """Return eq. (similarity) (C, C) of the class means of what the last layer of a head reads.

    These are the outputs of its hidden layer, or without one the features of the backbone. `embed` runs the head on all
    images, in their order.
    """
    last = [module for module in head.modules() if isinstance(module, nn.Linear)][-1]
    sums = _ClassSums(labels)
    hook = last.register_forward_pre_hook(lambda _, inputs: sums.add(inputs[0]))
    try:
        embed()
    finally:
        hook.remove()
    return sums.similarity()


def check_every_class_has_images(labels: Labels) -> None:
    """Raise an `InputError` unless each class or tag has a mean."""
    missing = np.flatnonzero(labels.counts() == 0)
    if len(missing):
        raise InputError(f"The {labels.noun} {labels.names[missing[0]]} has no image, so proxies cannot be reassigned.")


class _ClassSums:
    """Sums over the images of each class or tag, which come in batches."""

    def __init__(self, labels: Labels) -> None:
        self.labels, self.count = labels, 0
        self.sums: Doubles | None = None

    def add(self, batch: Tensor) -> None:
        values = batch.detach().to("cpu", torch.float64).numpy()
        members = self.labels.subset(np.arange(self.count, self.count + len(values))).one_hot(np.float64)
        found = members.T @ values
        self.sums = found if self.sums is None else self.sums + found
        self.count += len(values)

    def similarity(self) -> Doubles:
        assert self.sums is not None
        means = self.sums / self.labels.counts()[:, None]
        return class_mean_similarity(means, np.arange(len(means)))
