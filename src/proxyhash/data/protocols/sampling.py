"""Random samples of images by class or tag, which never change between versions."""

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.images import Indices
from proxyhash.utils.random import permutation

PUBLISHED_SEED = 2019  # of all published protocols, whatever the seed of a run

Labels = NDArray[np.int64]
Tags = NDArray[np.bool_]


def shuffle(indices: Indices, seed: int, *purpose: str | int) -> Indices:
    """Return the indices in a fixed random order."""
    return indices[permutation(len(indices), seed, *purpose)]


def sample_per_class(indices: Indices, labels: Labels, count: int, seed: int, *purpose: str | int) -> Indices:
    """Return `count` images of each class, or all of a class that has fewer; sorted."""
    order = shuffle(indices, seed, *purpose)
    return np.sort(order[_rank_in_class(labels[order]) < count])


def sample_stratified(indices: Indices, labels: Labels, share: float, seed: int, *purpose: str | int) -> Indices:
    """Return about `share` of each class, sorted: at least one image of each class that has two, and never a whole class."""
    order = shuffle(indices, seed, *purpose)
    _, inverse, sizes = np.unique(labels[order], return_inverse=True, return_counts=True)
    wanted = np.minimum(np.maximum(1, np.round(sizes * share)), sizes - 1)
    return np.sort(order[_rank_in_class(labels[order]) < wanted[inverse]])


def sample_fraction(indices: Indices, share: float, seed: int, *purpose: str | int) -> Indices:
    """Return about `share` of the images, sorted: at least one of two, and never all."""
    count = int(min(max(1, round(len(indices) * share)), len(indices) - 1)) if len(indices) else 0
    return np.sort(shuffle(indices, seed, *purpose)[:count])


def sample_per_tag(indices: Indices, tags: Tags, count: int, seed: int, *purpose: str | int) -> Indices:
    """Return `count` images for each tag, rarest tag first, no image twice; sorted. `tags` (N, T) is indexed by image."""
    order = shuffle(indices, seed, *purpose)
    taken = np.zeros(len(order), bool)
    held = tags[order]
    for tag in np.argsort(held.sum(0), kind="stable"):
        free = np.flatnonzero(held[:, tag] & ~taken)
        taken[free[:count]] = True
    return np.sort(order[taken])


def _rank_in_class(labels: Labels) -> NDArray[np.int64]:
    """Return for each position how many earlier ones have the same label."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, np.int64)
    sizes = np.diff(np.r_[starts, len(ordered)])
    ranks = np.empty(len(labels), np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(starts, sizes)
    return ranks
